"""The triggers of `allocator db guard --sql`: ids are drawn as without them, and no row of a tag is set back."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from alembic import command
from click.testing import CliRunner
from support.distinct import distinct
from support.faults.ill_databases import changed, named
from support.faults.tcp_proxy import Wire
from support.servers.administrator import execute, values

from allocator import Allocator
from allocator.cli import main
from allocator.database.schema import upgrade
from allocator.database.store import Database
from allocator.doctor import examine
from allocator.errors import MaxValueWentBack, SchemaDamaged, TagExists

on_servers = pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)
on_mysql = pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)


def asked(url: str, *words: str) -> str:
    return CliRunner().invoke(main, ["db", *words, "--url", url]).output


def statements(url: str) -> list[str]:
    found: list[str] = json.loads(asked(url, "guard", "--sql", "--json"))["statements"]
    return found


@pytest.fixture
def guarded(fresh: str) -> str:
    """A database with the guard."""
    execute(fresh, *statements(fresh))
    return fresh


ROW = "(tag, max_value, step, max_step, id_limit) VALUES ('order', 0, 10, 10, 1000)"
REFUSED = [
    ("UPDATE allocator_segment SET max_value = max_value - 1", "max_value of a tag from falling"),
    ("UPDATE allocator_segment SET tag = 'Order'", "tags from being renamed"),
    ("DELETE FROM allocator_segment", "tags from being deleted"),
]
OF_KIND = {
    "postgres": ("TRUNCATE allocator_segment", "tags from being deleted"),
    "mysql": (f"REPLACE INTO allocator_segment {ROW}", "tags from being deleted"),
    "sqlite": (f"REPLACE INTO allocator_segment {ROW}", "the row of a tag from being replaced"),
}
OF_KIND["mariadb"] = OF_KIND["mysql"]


@pytest.mark.statements
def test_what_sets_a_row_back_is_refused_and_without_the_guard_it_is_done(guarded, kind):
    with Allocator(guarded) as ids:
        ids.reserve("order", 10)
        state = ids.tags.get("order")
        database = ids._backend.databases()[0]
        for statement, words in (*REFUSED, OF_KIND[kind]):
            with pytest.raises(MaxValueWentBack, match=f"the guard keeps {words}.*; raise numbers only, or drop"):
                database.run(lambda connection, _, words=statement: connection.exec_driver_sql(words))
        assert ids.tags.get("order") == state

    execute(guarded, *(one for one in statements(guarded) if one.startswith("DROP")))
    execute(guarded, OF_KIND[kind][0], REFUSED[2][0])
    assert values(guarded, "SELECT count(*) FROM allocator_segment") == [0]


@pytest.mark.statements
def test_ids_are_drawn_and_tags_are_managed_under_the_guard(guarded, sync):
    ids = sync(guarded, step=10)
    drawn = [*(ids.next_id("order") for _ in range(25)), *ids.reserve("order", 30), *ids.reserve("order", 1)]
    ids.tags.create("user", start_after=5)
    with pytest.raises(TagExists):
        ids.tags.create("user")
    ids.tags.set("user", start_after=500, failover_gap=7, step=3)
    ids.tags.repair("user")

    assert distinct(drawn) == 56
    assert ids.next_id("user") > 500
    assert distinct([sync(guarded, step=10).next_id("order"), *drawn]) == 57


@on_servers
def test_a_claim_is_one_round_trip_under_the_guard(guarded, sync):
    with Wire(guarded) as wire:
        ids = sync(wire.url, step=5, max_step=5)
        ids.reserve("order", 1), ids.reserve("order", 1)
        wire.reset()
        drawn = [number for _ in range(20) for number in ids.reserve("order", 1)]

        assert distinct(drawn) == wire.round_trips == 20
        ids.close()


CHANGED = {
    "postgres": (
        "CREATE OR REPLACE FUNCTION allocator_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
        "ALTER TABLE allocator_segment DISABLE TRIGGER allocator_guard_rows",
    ),
    "mysql": (
        "CREATE TRIGGER allocator_guard_update BEFORE UPDATE ON allocator_segment FOR EACH ROW SET @touched = 1",
        "CREATE TRIGGER allocator_guard_update AFTER UPDATE ON allocator_segment FOR EACH ROW SET @touched = 1",
    ),
    "sqlite": (
        "CREATE TRIGGER allocator_guard_fall BEFORE UPDATE ON allocator_segment BEGIN SELECT 1; END",
        "CREATE TRIGGER allocator_guard_fall AFTER UPDATE ON allocator_segment BEGIN SELECT 1; END",
    ),
}
CHANGED["mariadb"] = CHANGED["mysql"]


def test_the_guard_is_known_and_one_that_was_changed_is_found(guarded, kind):
    assert "the tables are correct" in asked(guarded, "check")
    assert "trigger" not in named(examine(guarded))
    for words in CHANGED[kind]:
        name = "allocator_guard_" + {"sqlite": "fall", "postgres": "rows"}.get(kind, "update")
        if kind != "postgres":
            execute(guarded, f"DROP TRIGGER {name}")
        execute(guarded, words)
        assert f"trigger {name} on allocator_segment" in asked(guarded, "check")
        assert name in named(examine(guarded))["trigger"].found

        execute(guarded, *statements(guarded))
        assert "trigger" not in named(examine(guarded))


LOWERS = "CREATE TRIGGER lowers BEFORE UPDATE ON allocator_segment FOR EACH ROW SET NEW.max_value = OLD.max_value"


@on_mysql
def test_a_trigger_beside_the_guard_that_changes_what_is_claimed_gives_no_id_twice(guarded):
    with Allocator(guarded, step=5, max_step=5) as ids:
        drawn = [*ids.reserve("order", 5), *ids.reserve("order", 5)]
        with changed(guarded, LOWERS, "DROP TRIGGER lowers"), pytest.raises(SchemaDamaged, match="has a trigger"):
            drawn += ids.reserve("order", 5)
        drawn += ids.reserve("order", 5)

    assert distinct(drawn) == 15


def test_a_downgrade_under_the_guard_and_the_guard_made_again(guarded):
    database, config = Database(guarded, timeout=60), upgrade.alembic_config()
    with closing(database):
        with database.engine.connect() as connection, database.dialect.schema_change(connection, 60):
            config.attributes[upgrade.CONNECTION] = connection
            command.downgrade(config, "base")
        database.upgrade_schema()
    execute(guarded, *statements(guarded))
    assert "the tables are correct" in asked(guarded, "check")


def test_a_url_is_enough_to_print_it():
    """No server is asked, and a client of the database's own can run what is printed."""
    printed = asked("mysql+pymysql://nobody@nowhere.invalid/ids", "guard", "--sql")
    assert "DELIMITER //\n" in printed
    assert "END//\n" in printed
    assert asked("sqlite://", "guard").endswith("add --sql\n")
