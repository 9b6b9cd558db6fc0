"""Columns, counters and servers that are hard on `allocator takeover`: done, or refused with a true sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError, IntegrityError
from support.distinct import distinct
from support.servers.administrator import administrator, execute, values

from allocator import Allocator
from allocator.cli import main
from allocator.database.mysql import takeover as mysql_takeover

PLAIN = {"postgres": "id BIGSERIAL PRIMARY KEY", "mysql": "id BIGINT AUTO_INCREMENT PRIMARY KEY"}
PLAIN["mariadb"] = PLAIN["mysql"]
SESSIONS, CACHE = 10, 100


def run(url: str, *words: str, code: int = 0) -> Any:
    """What a command prints as JSON, or its sentence if it is refused."""
    result = CliRunner().invoke(main, ["takeover", *words, "--json", "--url", url])
    assert result.exit_code == code, result.output
    return json.loads(result.stdout) if result.stdout else json.loads(result.stderr.splitlines()[-1])["message"]


def start(url: str, place: str = "t.id", **how: Any) -> Any:
    return run(url, "start", place, "--tag", "order", "--watch", "0", "--yes", **how)


# -- a sequence whose values sessions hold


CACHED = {
    "serial": ["CREATE TABLE t (id BIGSERIAL PRIMARY KEY, n INT)", f"ALTER SEQUENCE t_id_seq CACHE {CACHE}"],
    "identity": [f"CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY (CACHE {CACHE}) PRIMARY KEY, n INT)"],
}


@pytest.fixture
def sessions(fresh: str) -> Iterator[Callable[[], list[Connection]]]:
    with ExitStack() as stack:
        yield lambda: [stack.enter_context(administrator(fresh)) for _ in range(SESSIONS)]


def insert_raw(session: Connection) -> int:
    return int(session.exec_driver_sql("INSERT INTO t (n) VALUES (1) RETURNING id").scalar_one())


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("kind", ["postgres"])
def test_ten_sessions_that_hold_a_hundred_values_each(kind, name, fresh, sessions):
    execute(fresh, *CACHED[name])
    all_ten = sessions()
    old = [insert_raw(session) for session in all_ten]
    seen = start(fresh)
    with Allocator(fresh) as ids:
        for session in all_ten:
            session.exec_driver_sql(f"INSERT INTO t (id) VALUES ({ids.next_id('order')})")
            old += [insert_raw(session) for _ in range(3 * CACHE // 2)]  # what it holds, and of what comes then
        assert "the counter moved from" in run(fresh, "finish", "t.id", "--idle", "0s", "--yes", code=1)
        during = run(fresh, "status", "t.id")
        run(fresh, "finish", "t.id", "--idle", "0s", "--yes")
        for session in all_ten:
            with pytest.raises(DBAPIError, match='null value in column "id"'):
                insert_raw(session)
        done = run(fresh, "back", "t.id", "--yes")
        again = [insert_raw(session) for session in all_ten]

    assert (seen["problems"], during["problems"], done["problems"]) == ([], [], [])
    assert max(old) < int(seen["tag_range"][0])
    assert min(again) > int(done["tag_range"][1])
    rows = values(fresh, "SELECT id FROM t")
    assert distinct(rows) == len(old) + 2 * SESSIONS


# -- a counter that is set by hand


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", ["postgres"])
def test_setval_below_the_rows(kind, when, fresh):
    """The old way then meets its own rows, which the key refuses, and never an id of the tag."""
    execute(fresh, f"CREATE TABLE t ({PLAIN[kind]}, n INT)", "INSERT INTO t (n) SELECT generate_series(1, 100)")
    if when == "before":
        execute(fresh, "SELECT setval('t_id_seq', 5)")
    seen = start(fresh)
    if when == "after":
        execute(fresh, "SELECT setval('t_id_seq', 5)")
    engine = create_engine(fresh)
    with pytest.raises(IntegrityError), engine.begin() as connection:
        insert_raw(connection)
    engine.dispose()

    assert run(fresh, "status", "t.id")["problems"] == seen["problems"] == []
    assert int(seen["tag_range"][0]) > int(seen["counter_range"][1]) > 100


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_a_counter_that_is_set_into_the_range_of_the_tag(fresh, kind):
    execute(fresh, f"CREATE TABLE t ({PLAIN[kind]}, n INT)", "INSERT INTO t (n) VALUES (1)")
    seen = start(fresh)
    execute(fresh, f"ALTER TABLE t AUTO_INCREMENT = {int(seen['tag_range'][0]) + 5}")
    (problem,) = run(fresh, "status", "t.id", code=1)["problems"]

    assert "below its range: it was set back by hand" in problem


# -- what a column may be

FUNCTION = "CREATE FUNCTION w() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {}; RETURN NEW; END$$"
FIRES = "CREATE TRIGGER w BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION w()"
COUNTED = "CREATE TABLE t (id {} AUTO_INCREMENT PRIMARY KEY)"
REFUSED = {
    "postgres": {
        "a partition": (
            [
                f"CREATE TABLE p ({PLAIN['postgres']}) PARTITION BY RANGE (id)",
                "CREATE TABLE t PARTITION OF p FOR VALUES FROM (1) TO (1000)",
            ],
            "public.t is partitioned or has child tables",
        ),
        "a child": (
            [f"CREATE TABLE p ({PLAIN['postgres']})", "CREATE TABLE t (PRIMARY KEY (id)) INHERITS (p)"],
            "public.t is partitioned or has child tables",
        ),
        "a key of some rows": (
            ["CREATE TABLE t (id BIGSERIAL, n INT)", "CREATE UNIQUE INDEX u ON t (id) WHERE n > 1"],
            "public.t.id has no primary or unique key of its own",
        ),
        "a trigger that fills": (
            [
                f"CREATE TABLE t ({PLAIN['postgres']})",
                FUNCTION.format("IF NEW.id IS NULL THEN NEW.id := nextval('t_id_seq'); END IF"),
                FIRES,
            ],
            "the trigger w on public.t may write id before each insert; drop it first",
        ),
        "a smallint at its end": (
            ["CREATE TABLE t (id SMALLSERIAL PRIMARY KEY)", "SELECT setval('t_id_seq', 32767)"],
            "public.t.id (smallint) ends at 32,767, and 0 values are left",
        ),
    },
    "mysql": {
        "the second of a key": (
            ["CREATE TABLE t (n INT, id BIGINT AUTO_INCREMENT, PRIMARY KEY (n, id), KEY (id))"],
            "t.id has no primary or unique key of its own",
        ),
        "tiny": ([COUNTED.format("TINYINT UNSIGNED")], "ends at 255, and 255 values are left"),
        "above all ids": (
            [COUNTED.format("BIGINT UNSIGNED"), "INSERT INTO t VALUES (10000000000000000000)"],
            "t.id is at 10,000,000,000,000,000,000, and no tag gives ids above 9,223,372,036,854,775,807",
        ),
        "a trigger that fills": (
            [
                COUNTED.format("BIGINT"),
                "CREATE TRIGGER w BEFORE INSERT ON t FOR EACH ROW IF NEW.id = 0 THEN SET NEW.id = UUID_SHORT(); END IF",
            ],
            "may write id before each insert; drop it first",
        ),
    },
}
REFUSED["mariadb"] = REFUSED["mysql"]


@pytest.mark.parametrize(
    ("kind", "case"), [pytest.param(kind, one, id=f"{kind}-{one}") for kind, cases in REFUSED.items() for one in cases]
)
def test_refused(fresh, kind, case):
    statements, sentence = REFUSED[kind][case]
    execute(fresh, *statements)

    assert sentence in start(fresh, code=1)
    assert values(fresh, "SELECT tag FROM allocator_segment") == []


BESIDE = "CREATE TABLE t (n INT DEFAULT 1, id {} UNIQUE, PRIMARY KEY (n, id))"
DONE = {
    "postgres": {"a key beside a composite one": BESIDE.format("BIGSERIAL")},
    "mysql": {
        "a key beside a composite one": BESIDE.format("BIGINT AUTO_INCREMENT"),
        "smallint unsigned": COUNTED.format("SMALLINT UNSIGNED"),
        "mediumint unsigned": COUNTED.format("MEDIUMINT UNSIGNED"),
        "bigint unsigned": COUNTED.format("BIGINT UNSIGNED"),
    },
}
DONE["mariadb"] = DONE["mysql"]


@pytest.mark.parametrize(
    ("kind", "case"), [pytest.param(kind, one, id=f"{kind}-{one}") for kind, cases in DONE.items() for one in cases]
)
def test_done(fresh, kind, case):
    execute(fresh, DONE[kind][case])
    seen = start(fresh)
    with Allocator(fresh) as ids:
        new = ids.next_id("order")
    raw = "INSERT INTO t DEFAULT VALUES" if kind == "postgres" else "INSERT INTO t (id) VALUES (NULL)"
    execute(fresh, f"INSERT INTO t (id) VALUES ({new})", raw)

    assert run(fresh, "status", "t.id")["problems"] == []
    (other,) = set(values(fresh, "SELECT id FROM t")) - {new}
    for one, span in ((new, seen["tag_range"]), (other, seen["counter_range"])):
        assert int(span[0]) <= one <= int(span[1])


# -- a server that only replicates


@pytest.mark.parametrize("command", ["status", "finish", "back"])
@pytest.mark.parametrize("kind", ["mysql"])
def test_on_a_replica_nothing_is_done(fresh, kind, command, monkeypatch):
    """Whose user may write all the same; `tests/failover/test_replicas.py` has real ones."""
    execute(fresh, f"CREATE TABLE t ({PLAIN[kind]})")
    start(fresh)
    monkeypatch.setattr(mysql_takeover, "COLUMN", mysql_takeover.COLUMN.replace("@@global.read_only", "1"))

    assert run(fresh, command, "t.id", code=1) == "this server is a read-only replica; use the primary"
    assert values(fresh, "SELECT state FROM allocator_takeover") == ["started"]
