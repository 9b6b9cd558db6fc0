"""The triggers of `guard.sql`: ids are drawn as without them, and no row of a tag is set back."""

import sqlite3
from contextlib import closing
from importlib.resources import files

import pytest
from support.distinct import distinct
from support.faults.ill_databases import changed, named
from support.kit import ON_MYSQL, ON_TWO, database_of, run
from support.servers.administrator import execute, values
from support.servers.databases import migrate, with_schema

from allocator import Allocator
from allocator.doctor import DANGER, examine
from allocator.errors import MaxValueWentBack, SchemaDamaged, TagExists


def script(kind: str) -> str:
    folder = {"postgres": "postgresql"}.get(kind, kind)
    return files("allocator.database").joinpath(f"guard_{folder}.sql").read_text()


def guard(kind: str, url: str) -> None:
    """Run the file as the database's own client does."""
    if kind == "sqlite":
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            connection.executescript(script(kind))
    else:
        execute(url, script(kind))


@pytest.fixture
def guarded(fresh: str, kind: str) -> str:
    """A database with the guard."""
    guard(kind, fresh)
    return fresh


ROW = "(tag, max_value, step, max_step, id_limit) VALUES ('order', 0, 10, 10, 1000)"
REFUSED = [
    ("UPDATE allocator_segment SET max_value = max_value - 1", "max_value of a tag from falling"),
    ("UPDATE allocator_segment SET tag = 'Order'", "tags from being renamed"),
    ("DELETE FROM allocator_segment", "tags from being deleted"),
]
OF_KIND = {
    "postgres": ("TRUNCATE allocator_segment", "tags from being deleted"),
    "sqlite": (f"REPLACE INTO allocator_segment {ROW}", "the row of a tag from being replaced"),
}


@ON_TWO
def test_what_sets_a_row_back_is_refused_and_without_the_guard_it_is_done(guarded, kind):
    with Allocator(guarded) as ids:
        ids.reserve("order", 10)
        state = ids.tags.get("order")
        database = database_of(ids)
        for statement, words in (*REFUSED, OF_KIND[kind]):
            with pytest.raises(MaxValueWentBack, match=f"the guard keeps {words}.*; raise numbers only, or drop"):
                database.run(lambda connection, _, words=statement: connection.exec_driver_sql(words))
        assert ids.tags.get("order") == state

    execute(guarded, *(line.rstrip(";") for line in script(kind).splitlines() if line.startswith("DROP")))
    execute(guarded, OF_KIND[kind][0], REFUSED[2][0])
    assert values(guarded, "SELECT count(*) FROM allocator_segment") == [0]


@ON_TWO
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


ROWS = "ON allocator_segment FOR EACH ROW"


SET_BACK = "UPDATE allocator_segment SET max_value = OLD.max_value WHERE tag = OLD.tag"
FUNCTION = "CREATE FUNCTION {}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {}; END $$"
KEEPS, UNDOES = "NEW.max_value := OLD.max_value; RETURN NEW", f"{SET_BACK}; RETURN NULL"
IN_MYSQL = [
    ("TRIGGER `keeps`", f"CREATE TRIGGER keeps BEFORE UPDATE {ROWS} SET NEW.max_value = OLD.max_value"),
    ("TRIGGER `lo``oks`", f"CREATE TRIGGER `lo``oks` AFTER UPDATE {ROWS} SET @seen = NEW.max_value"),
]
UNDONE = f"CREATE TRIGGER undoes AFTER UPDATE ON allocator_segment BEGIN {SET_BACK}; END"
ONCE = f"AFTER UPDATE {ROWS} WHEN (pg_trigger_depth() = 0)"
OTHER = "UPDATE ON allocator_segment", "UPDATE ON allocator_ticket"
OURS, THERE = "allocator_guard_own", f"AFTER UPDATE {ROWS} EXECUTE FUNCTION keeps()".replace(*OTHER)
BY_HAND = {
    "postgres": [
        ("TRIGGER keeps", f"CREATE TRIGGER keeps BEFORE UPDATE {ROWS} EXECUTE FUNCTION keeps()"),
        ("TRIGGER undoes", f"CREATE TRIGGER undoes {ONCE} EXECUTE FUNCTION undoes()"),
        (f"TRIGGER {OURS}", f"CREATE TRIGGER {OURS} BEFORE UPDATE {ROWS} EXECUTE FUNCTION keeps()"),
        ("TRIGGER allocator_guard_rows", f"CREATE TRIGGER allocator_guard_rows {THERE}"),
        ("RULE drops", "CREATE RULE drops AS ON UPDATE TO allocator_ticket DO INSTEAD NOTHING"),
    ],
    "sqlite": [
        ('TRIGGER "undoes"', UNDONE),
        ('TRIGGER "undoes"', UNDONE.replace("ON allocator", "ON ALLOCATOR")),
        ('TRIGGER "un""does"', UNDONE.replace("undoes", '"un""does"')),
        (f'TRIGGER "{OURS}"', UNDONE.replace("undoes", OURS)),
        ('TRIGGER "allocator_guard_fall"', UNDONE.replace("undoes", "allocator_guard_fall").replace(*OTHER)),
        ('TRIGGER "looks"', "CREATE TRIGGER looks BEFORE INSERT ON allocator_ticket BEGIN SELECT 1; END"),
    ],
    "mysql": IN_MYSQL,
    "mariadb": IN_MYSQL,
}
"""What is made, and how."""


def test_a_trigger_made_by_hand_is_refused_at_first_contact_and_the_message_says_how_to_drop_it(fresh, kind):
    drawn: list[int] = []
    if kind == "postgres":
        execute(fresh, FUNCTION.format("keeps", KEEPS), FUNCTION.format("undoes", UNDOES))
    for what, made in BY_HAND[kind]:
        drop = f"DROP {what}"
        execute(fresh, made)
        for _ in range(2):
            with Allocator(fresh, step=5, max_step=5) as ids:
                with pytest.raises(SchemaDamaged) as refused:
                    drawn.append(ids.next_id("order"))
                with pytest.raises(SchemaDamaged):
                    drawn += ids.reserve("order", 5)
            assert drop in str(refused.value)
        assert drop in run(fresh, "db", "check").out
        found = named(examine(fresh))["schema-damaged"]
        assert (found.severity, drop in found.mend) == (DANGER, True)
        table_name = "allocator_ticket" if "allocator_ticket" in made else "allocator_segment"
        execute(fresh, f"{drop} ON {table_name}" if kind == "postgres" else drop)
        with Allocator(fresh, step=5, max_step=5) as ids:
            drawn += ids.reserve("order", 5)

    assert distinct(drawn) == 5 * len(BY_HAND[kind])


@ON_MYSQL
def test_what_comes_without_an_insert_id_is_not_served(fresh):
    """As under a trigger that was made since the process began, or that its user may not see."""
    fixes = "CREATE TRIGGER fixes BEFORE {} FOR EACH ROW SET NEW.{} = 7"
    draws = {
        fixes.format("UPDATE ON allocator_segment", "max_value"): lambda ids: ids.reserve("order", 1)[0],
        fixes.format("INSERT ON allocator_ticket", "id"): lambda ids: ids.ticket("invoice"),
    }
    for trigger, draw in draws.items():
        with Allocator(fresh) as ids, Allocator(fresh) as later:
            drawn = [draw(ids)]
            with changed(fresh, trigger, "DROP TRIGGER fixes"):
                for _ in range(2):
                    with pytest.raises(SchemaDamaged, match="has a trigger.*DROP TRIGGER name"):
                        drawn.append(draw(ids))
            drawn.append(draw(later))

            assert distinct(drawn) == 2


@ON_TWO
def test_the_guard_is_known_and_after_a_downgrade_made_again(guarded, kind):
    for _ in range(2):
        assert "the tables are correct" in run(guarded, "db", "check").out
        assert "schema-damaged" not in named(examine(guarded))
        migrate(guarded, "downgrade", "base")
        guard(kind, with_schema(guarded))
