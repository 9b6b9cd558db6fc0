"""`allocator tags create --beside-column`: what each database says of a column and its tag."""

import json
import shlex
from typing import Any

import pytest
from support import kit
from support.distinct import distinct
from support.kit import ON_POSTGRES, ON_SERVERS, SQLITE
from support.servers.administrator import execute, values
from support.servers.fleets import make

from allocator import Allocator
from allocator.errors import Exhausted

PLAIN = "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, what VARCHAR(20))"
SERIAL = "CREATE TABLE orders (id BIGSERIAL PRIMARY KEY, what VARCHAR(20))"
IDENTITY = "CREATE TABLE orders (id BIGINT GENERATED {} AS IDENTITY PRIMARY KEY, what VARCHAR(20))"
COUNTING = "CREATE TABLE orders (id {} AUTO_INCREMENT PRIMARY KEY, what VARCHAR(20))"


def run(url: str, *words: str, code: int = 0) -> Any:
    """What a command prints as JSON, or its sentence if it is refused."""
    said = kit.run(url, *words, "--json")
    assert said.code == code, said
    return said.json if said.out else json.loads(said.err.splitlines()[-1])["message"]


def share(column: str = "orders.id", tag: str = "order") -> list[str]:
    return ["tags", "create", tag, "--beside-column", column]


def found(url: str, column: str = "orders.id") -> dict[str, str]:
    """The remedy of each finding, by name."""
    said = kit.run(url, *share(column), "--json")
    findings = said.json["findings"]
    assert said.code == any(one["severity"] != "note" for one in findings)
    return {one["name"]: one["mend"] for one in findings}


def of_server(kind: str, by_kind: dict[str, Any]) -> Any:
    return by_kind["mysql" if kind == "mariadb" else kind]


def test_a_tag_below_its_column_is_raised_by_the_remedy(kind, fresh):
    """Whatever the names are: drivers take % for a placeholder, and a dot stands between two unless it is in quotes."""
    table, column, words = '"or.der %d :x"', '"i.d%"', '"or.der %d :x"."i.d%"'
    counted = {"postgres": "BIGSERIAL PRIMARY KEY", "mysql": "BIGINT AUTO_INCREMENT PRIMARY KEY"}
    typed = of_server(kind, counted | {"sqlite": "INTEGER PRIMARY KEY"})

    def in_sql(*statements: str) -> None:
        execute(fresh, *(one.replace('"', "`") if kind in {"mysql", "mariadb"} else one for one in statements))

    in_sql(f"CREATE TABLE {table} ({column} {typed})", f"INSERT INTO {table} ({column}) VALUES (7), (41)")
    run(fresh, "tags", "create", "order", "--start-after-column", words)
    assert "tag-below-column" not in found(fresh, words)
    with Allocator(fresh) as ids:
        assert ids.next_id("order") == 42
    in_sql(f"INSERT INTO {table} ({column}) VALUES (5000)")
    run(fresh, *shlex.split(found(fresh, words)["tag-below-column"])[1:])

    assert "tag-below-column" not in found(fresh, words)
    assert run(fresh, "tags", "list", "order")[0]["max_value"] == "5000"
    assert run(fresh, "numbers", "audit", words, "none", code=1)["rows"] == 3


def test_what_is_no_column_of_ids_is_refused(fresh, subtests):
    execute(fresh, PLAIN, "INSERT INTO orders VALUES (1, 'tea')")
    run(fresh, "tags", "create", "order")
    for place, sentence in (
        ("orders.no", "there is no column"),
        ("none.id", "there is no column"),
        ("orders.what", "is no whole number"),
        ("orders", "is named table.column"),
    ):
        with subtests.test(place):
            assert sentence in run(fresh, *share(place), code=1)
    for own in ("--limit=9", "--start-after=0", "--start-after-column=orders.id"):
        assert kit.run(fresh, *share(), own).code == 2, own


# -- beside the column's own counter

HELD = {
    "postgres": [[SERIAL], [SERIAL.replace("BIGSERIAL", "SERIAL")], [IDENTITY.format("ALWAYS")]],
    "mysql": [[COUNTING.format("BIGINT")], [COUNTING.format("INT UNSIGNED"), "ALTER TABLE orders AUTO_INCREMENT = 7"]],
}


@ON_SERVERS
def test_both_get_ids_once_the_counter_is_held_as_planned(kind, fresh):
    """Until then nobody gets an id of the tag, and every further run prints the same statement."""
    old = "INSERT INTO orders (what) VALUES ('old')"
    for made in of_server(kind, HELD):
        execute(fresh, *made, old)
        planned = found(fresh)
        assert set(planned) == {"tag-waits"}, made
        execute(fresh, old)
        assert found(fresh) == planned, made
        with Allocator(fresh) as ids, pytest.raises(Exhausted, match="run again: allocator tags create order --beside"):
            ids.next_id("order")
        execute(fresh, planned["tag-waits"], old)
        tag = run(fresh, *share())
        assert int(tag["max_step"]) == (1_000_000 if kind == "postgres" else 488)  # no great part of its range
        with Allocator(fresh) as ids:
            new = ids.next_ids("order", 20)
        execute(fresh, *(f"INSERT INTO orders (id) VALUES ({one})" for one in new), old)

        assert distinct(values(fresh, "SELECT id FROM orders")) == 24
        assert found(fresh) == {}, made
        execute(fresh, "DROP TABLE orders", "DELETE FROM allocator_segment")


@ON_SERVERS
def test_a_tag_that_waits_starts_above_a_row_in_its_range(kind, fresh):
    execute(fresh, *of_server(kind, HELD)[0])
    hold = found(fresh)["tag-waits"]
    execute(fresh, "INSERT INTO orders (id) VALUES (1000005)", hold)

    if kind == "postgres":  # its counter stays below
        assert run(fresh, *share())["max_value"] == "2000005"
        return
    assert set(found(fresh)) == {"tag-waits"}
    assert run(fresh, "tags", "list", "order")[0]["max_value"] == "3000000"
    with Allocator(fresh) as ids, pytest.raises(Exhausted):
        ids.next_id("order")


@ON_SERVERS
def test_a_tag_that_waits_starts_above_a_counter_that_came_to_its_range(kind, fresh):
    """Its rows are gone, so that only the counter knows."""
    execute(fresh, *of_server(kind, HELD)[0])
    found(fresh)
    raised = {
        "postgres": "SELECT setval('orders_id_seq', 1000001)",
        "mysql": "ALTER TABLE orders AUTO_INCREMENT = 1000002",
    }
    execute(fresh, of_server(kind, raised))
    found(fresh)

    assert run(fresh, "tags", "list", "order")[0]["max_value"] == "2000001"


def test_nothing_is_made_beside_what_cannot_be_held(fresh):
    execute(fresh, PLAIN)

    assert "has no counter that can be held apart from a tag" in run(fresh, *share(), code=1)
    assert values(fresh, "SELECT tag FROM allocator_segment") == []


@ON_POSTGRES
def test_a_sequence_that_serves_two_columns_cycles_or_counts_down_cannot_be_held(fresh):
    run(fresh, "tags", "create", "order")
    for how in (
        ["CREATE TABLE other (id BIGINT PRIMARY KEY DEFAULT nextval('orders_id_seq'))"],
        ["ALTER SEQUENCE orders_id_seq CYCLE"],
        ["ALTER SEQUENCE orders_id_seq INCREMENT -1 MINVALUE -9"],
        ["CREATE SEQUENCE own", "ALTER TABLE orders ALTER id SET DEFAULT 2 * nextval('own')"],
    ):
        execute(fresh, SERIAL, *how)
        said = run(fresh, *share(tag="new"), code=1)
        assert "has no counter that can be held" in said, how
        assert set(found(fresh)) == {"second-generator"}, how
        execute(fresh, "DROP TABLE IF EXISTS other", "DROP TABLE orders CASCADE")


@SQLITE
def test_a_fleet_is_refused(fresh):
    make(fresh, 2)
    execute(fresh, PLAIN)
    assert "a tag of a fleet cannot be compared" in run(fresh, *share(), code=1)
