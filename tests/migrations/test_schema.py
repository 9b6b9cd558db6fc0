"""The schema: from zero it equals the metadata, on every database; up, down, up; several at once."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import sleep

import pytest
from alembic import command
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import create_engine, inspect, text
from support.servers.administrator import execute

from allocator import Allocator, Numbers
from allocator.database.schema import inspection, upgrade
from allocator.database.schema.tables import REVISIONS, VERSION_TABLE, metadata
from allocator.database.store import Database
from allocator.errors import SchemaOutOfDate
from allocator.schemes.tag import AUTO, REFUSE
from allocator.service.token_administration import Tokens

SERVERS = pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)
SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
TWO = pytest.mark.parametrize("kind", ["sqlite", "mysql"], indirect=True)
"""One that takes DDL back with a transaction, and one that commits it."""


def picture(url: str) -> dict[str, object]:
    """Everything that the database can tell of our tables."""
    engine = create_engine(url)
    with engine.connect() as connection:
        inspector = inspect(connection)
        seen: dict[str, object] = {}
        options = inspection.described(inspector.get_multi_table_options)
        for name in sorted(set(inspector.get_table_names()) - {VERSION_TABLE}):
            seen[name] = {
                "columns": [{**column, "type": repr(column["type"])} for column in inspector.get_columns(name)],
                "key": inspector.get_pk_constraint(name)["constrained_columns"],
                "checks": sorted(str(check) for check in inspector.get_check_constraints(name)),
                "indexes": inspector.get_indexes(name),
                "options": options.get(name, {}),
            }
            if engine.dialect.name in {"mysql", "mariadb"}:
                seen[f"{name} as shown"] = connection.execute(text(f"SHOW CREATE TABLE {name}")).one()[1]
    engine.dispose()
    return seen


def migrate(url: str, direction: str, to: str) -> None:
    database = Database(url, timeout=60)
    config = upgrade.alembic_config()
    with (
        closing(database),
        database.engine.connect() as connection,
        database.dialect.schema_change(connection, 60),
    ):
        config.attributes[upgrade.CONNECTION] = connection
        getattr(command, direction)(config, to)


@pytest.mark.statements
def test_from_zero_equals_the_metadata(kind, new_database):
    migrated, created = new_database(kind), new_database(kind)
    migrate(migrated, "upgrade", "head")
    engine = create_engine(created)
    metadata.create_all(engine)
    engine.dispose()

    assert picture(created) == picture(migrated)
    assert picture(migrated)


@SQLITE
def test_control_a_column_that_differs_is_noticed(kind, new_database):
    migrated, created = new_database(kind), new_database(kind)
    for url, type_ in ((migrated, "BIGINT"), (created, "INTEGER")):
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text(f"CREATE TABLE allocator_segment (max_value {type_})"))
        engine.dispose()

    assert picture(created) != picture(migrated)


@pytest.mark.statements
def test_up_down_up(empty):
    for _ in range(2):
        migrate(empty, "upgrade", "head")
        up = picture(empty)
        migrate(empty, "downgrade", "base")
        assert picture(empty) == {}
    migrate(empty, "upgrade", "head")

    assert picture(empty) == up


def rows(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Every row of our tables, also the version."""
    engine = create_engine(url)
    with engine.connect() as connection:
        names = sorted(inspect(connection).get_table_names())
        found = {name: [tuple(row) for row in connection.execute(text(f"SELECT * FROM {name}"))] for name in names}
    engine.dispose()
    return found


LATE = (
    "INSERT INTO allocator_segment (tag, max_value, step, max_step, id_limit) "
    "VALUES ('late', {}, 1, 1, 9223372036854775807)"
)


def take_a_number(url: str) -> None:
    engine = create_engine(url)
    with engine.begin() as connection:
        Numbers("invoice").next(connection)
    engine.dispose()


USES = [
    (lambda ids, url: ids.next_id("order"), ["base"], "1 tags have given out ids"),
    (lambda ids, url: ids.meteor(), ["base", "0001", f"-{len(REVISIONS) - 1}"], "1 rows of allocator_node"),
    (lambda ids, url: ids.ticket("order"), ["base", "0002"], "1 rows of allocator_ticket "),
    (lambda ids, url: take_a_number(url), ["base", "0008"], "1 rows of allocator_number keep numbers from being given"),
]
"""In the order of their revisions: the newest one refuses first."""
UNCHANGED = "refused before any table of the allocator was changed"


def test_a_downgrade_that_would_forget_is_refused_before_its_first_step(fresh):
    """MySQL and MariaDB keep what the steps before a refusal have dropped."""
    with closing(Database(fresh)) as database:
        Tokens(lambda: database).create("shop", verbs=("draw",), tags=("*",))
    with Allocator(fresh) as ids:
        for use, targets, sentence in USES:
            use(ids, fresh)
            before, drawn = rows(fresh), picture(fresh)
            for to in targets:
                with pytest.raises(CommandError, match=f"{UNCHANGED}: {sentence}"):
                    migrate(fresh, "downgrade", to)

                assert rows(fresh) == before
                assert picture(fresh) == drawn
    assert before["allocator_token"]
    assert before[VERSION_TABLE] == [(REVISIONS[-1],)]


@SQLITE
def test_steps_that_are_not_asked_for_are_not_checked(fresh):
    """Also where the target is relative: at the second step, two steps back would be another one."""
    with Allocator(fresh) as ids:
        ids.meteor()
        ids.tags.create("order")
    for to in ("-1", "-10"):
        migrate(fresh, "downgrade", to)

    assert rows(fresh)[VERSION_TABLE] == [("0002",)]
    with pytest.raises(CommandError, match="1 rows of allocator_node"):
        migrate(fresh, "downgrade", "-1")


@TWO
def test_what_is_used_after_the_first_look_stops_its_step(fresh, kind, monkeypatch):
    """A tag is used while a table is dropped: where DDL commits, the ids stay, though not what went before."""
    drop, late = Operations.drop_table, [5]

    def dropping(self, name, *more, **options):
        if late:
            self.execute(LATE.format(late.pop()))
        return drop(self, name, *more, **options)

    monkeypatch.setattr(Operations, "drop_table", dropping)
    with pytest.raises(CommandError, match="refused: 1 tags have given out ids"):
        migrate(fresh, "downgrade", "base")

    assert ("late", 5) in [row[:2] for row in rows(fresh).get("allocator_segment", [])] or kind == "sqlite"


@pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
def test_a_schema_that_is_behind_is_refused_and_brought_up_to_date(kind, empty):
    migrate(empty, "upgrade", "0001")
    with Allocator(empty) as ids:
        if kind != "sqlite":
            with pytest.raises(
                SchemaOutOfDate, match=f"is at revision 0001, and {REVISIONS[-1]} is needed; run: allocator db upgrade"
            ):
                ids.next_id("order")
            migrate(empty, "upgrade", "head")
        assert ids.meteor() > 0


@SQLITE
def test_ids_are_drawn_before_the_tables_of_numbers_are_there(empty):
    """A new version of the package stops no ids: only numbers want the tables that they are kept in."""
    migrate(empty, "upgrade", "0008")
    with Allocator(empty) as ids:
        assert (ids.next_id("order"), ids.ticket("order")) == (1, 1)
    (problem,) = problems(empty)

    assert problem == (
        "here lacks table allocator_number, table allocator_number_void, table allocator_lease, table "
        "allocator_takeover, table allocator_binding, table allocator_number_binding: ids are given, numbers without "
        "gaps and worker numbers and takeovers of columns and tags bound to columns and numbers bound to columns "
        "are not; run: allocator db upgrade"
    )


@pytest.mark.statements
def test_worker_numbers_before_their_table_is_there_say_what_to_run(empty):
    migrate(empty, "upgrade", "0009")
    with Allocator(empty) as ids:
        for _ in range(2):
            with pytest.raises(SchemaOutOfDate, match="run: allocator db upgrade"), ids.worker("pods"):
                pass
        assert ids.next_id("order") == 1
        migrate(empty, "upgrade", "head")
        with ids.worker("pods") as worker:
            assert worker.number == 0


@TWO
def test_a_downgrade_forgets_no_held_worker_number(fresh):
    held = pytest.raises(CommandError, match="1 numbers of allocator_lease are held; stop what holds them")
    with Allocator(fresh) as ids, ids.worker("pods"), held:
        migrate(fresh, "downgrade", "0009")
    sleep(0.01)  # to the millisecond after the last one in which it was used
    migrate(fresh, "downgrade", "0009")


def test_the_revisions_are_those_of_the_scripts():
    scripts = ScriptDirectory.from_config(upgrade.alembic_config())

    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == REVISIONS


def test_several_upgrades_at_once(empty):
    code = f"from allocator.cli import main; main(['db', 'upgrade', '--url', {empty!r}])"
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: run(code), range(4)))

    assert [process.returncode for process in done] == [0] * 4, [process.stderr for process in done]


def test_several_processes_at_once_make_the_embedded_schema(new_database):
    url = new_database("sqlite")
    code = f"from allocator import Allocator\nwith Allocator({url!r}, timeout=60) as ids: print(ids.next_id('order'))"
    with ThreadPoolExecutor(4) as pool:
        done = list(pool.map(lambda _: run(code), range(4)))

    told = [process.stdout.strip() for process in done]
    assert ["1", "1001", "2001", "3001"] == sorted(told), [process.stderr for process in done]


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.statements
def test_a_sound_schema_has_no_problems(fresh):
    assert problems(fresh) == []


def problems(url: str) -> list[str]:
    with closing(Database(url)) as database:
        return database.run(inspection.problems, "here")


ALTERED = {
    "max_value INT NOT NULL": "column allocator_segment.max_value is INT, and must be BIGINT",
    "max_value BIGINT": "column allocator_segment.max_value must be NOT NULL",
    "max_val BIGINT NOT NULL": "column allocator_segment.max_value is missing",
}


@pytest.mark.statements
@SERVERS
def test_a_table_altered_by_hand_is_found_out(fresh):
    columns = "step BIGINT NOT NULL, max_step BIGINT NOT NULL, id_limit BIGINT NOT NULL"
    for made, sentence in ALTERED.items():
        create = f"CREATE TABLE allocator_segment (tag VARCHAR(64) NOT NULL, {made}, {columns})"
        execute(fresh, "DROP TABLE allocator_segment", create)
        found = "\n".join(problems(fresh)).replace("INTEGER", "INT")

        assert sentence in found
        assert "primary key of allocator_segment is (), and must be (tag)" in found


@pytest.mark.statements
@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_an_engine_without_transactions_is_found_out(fresh):
    execute(fresh, "ALTER TABLE allocator_segment ENGINE = MyISAM")

    assert problems(fresh) == ["allocator_segment is kept by MyISAM, and must be by InnoDB, which has transactions"]


@TWO
def test_an_upgrade_that_died_before_it_was_written_down_can_be_run_again(fresh):
    execute(fresh, f"DROP TABLE {VERSION_TABLE}")
    with closing(Database(fresh)) as database:
        database.upgrade_schema()
        assert database.run(lambda connection, _: inspection.current(connection)) == inspection.HEAD


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_server_is_never_changed_unasked(empty):
    with Allocator(empty) as ids, pytest.raises(SchemaOutOfDate):
        ids.next_id("order")

    assert picture(empty) == {}


@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_an_upgrade_that_died_half_way_is_run_again(empty):
    """They commit each step by itself."""
    migrate(empty, "upgrade", "0004")
    execute(empty, "ALTER TABLE allocator_segment ADD COLUMN epoch VARCHAR(255) NOT NULL DEFAULT ''")
    migrate(empty, "upgrade", "head")

    with Allocator(empty) as ids:
        assert ids.next_id("order") == 1


def test_gaps_that_somebody_chose_stay_and_the_others_become_automatic(empty):
    migrate(empty, "upgrade", "0007")
    columns = "tag, max_value, step, max_step, id_limit, margin"
    given = {"usual": (10**9, 2**63 - 1), "int": (21474836, 2**31 - 1), "mine": (12345, 2**63 - 1)}
    refuses = {"refuses": (-1, 2**63 - 1), "none": (0, 2**63 - 1)}
    rows = [f"('{tag}', 0, 1, 1000000, {limit}, {gap})" for tag, (gap, limit) in (given | refuses).items()]
    execute(empty, f"INSERT INTO allocator_segment ({columns}) VALUES {', '.join(rows)}")
    migrate(empty, "upgrade", "head")

    with Allocator(empty) as ids:
        found = {tag.name: tag.failover_gap for tag in ids.tags.list()}
    assert found == {"usual": AUTO, "int": AUTO, "mine": 12345, "refuses": REFUSE, "none": 0}
