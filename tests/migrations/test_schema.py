"""The schema: from zero it equals the metadata, on every database; up, down, up; several at once."""

import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from unittest.mock import Mock

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import create_engine, inspect, text
from support.kit import ON_SERVERS, ON_TWO, SQLITE, Said, python
from support.servers.administrator import execute, opened, values
from support.servers.databases import migrate, problems, with_schema

from allocator import Allocator, Numbers
from allocator.database import schema
from allocator.database.store import Database
from allocator.database.tables import REVISIONS, VERSION_TABLE, metadata
from allocator.doctor import examine
from allocator.errors import SchemaDamaged, SchemaOutOfDate
from allocator.service.token_administration import Tokens

WRITTEN_DOWN = f"SELECT version_num FROM {VERSION_TABLE}"


def picture(url: str) -> dict[str, object]:
    """Everything that the database can tell of our tables."""
    with opened(url) as engine, engine.connect() as connection:
        inspector = inspect(connection)
        seen: dict[str, object] = {}
        for name in sorted(set(inspector.get_table_names()) - {VERSION_TABLE}):
            seen[name] = {
                "columns": [{**column, "type": repr(column["type"])} for column in inspector.get_columns(name)],
                "key": inspector.get_pk_constraint(name)["constrained_columns"],
                "checks": sorted(str(check) for check in inspector.get_check_constraints(name)),
                "indexes": inspector.get_indexes(name),
            }
            if engine.dialect.name in {"mysql", "mariadb"}:
                seen[f"{name} as shown"] = connection.execute(text(f"SHOW CREATE TABLE {name}")).one()[1]
    return seen


def test_from_zero_equals_the_metadata_up_down_and_up_again(kind, new_database):
    migrated, created = new_database(kind), new_database(kind)
    with opened(created) as engine:
        metadata.create_all(engine)
    for _ in range(2):
        migrate(migrated, "upgrade", "head")
        assert picture(migrated) == picture(created) != {}
        migrate(migrated, "downgrade", "base")
        assert picture(migrated) == {}


@SQLITE
def test_control_a_column_that_differs_is_noticed(kind, new_database):
    migrated, created = new_database(kind), new_database(kind)
    for url, type_ in ((migrated, "BIGINT"), (created, "INTEGER")):
        execute(url, f"CREATE TABLE allocator_segment (max_value {type_})")

    assert picture(created) != picture(migrated)


def take_a_number(url: str) -> None:
    with opened(url) as engine, engine.begin() as connection:
        Numbers("invoice").next(connection)


def make_a_token(url: str) -> None:
    with closing(Database(url)) as database:
        Tokens(database).create("shop", verbs=("draw",), tags=("*",))


USES: dict[str, Callable[[Allocator, str], object]] = {
    "allocator_segment": lambda ids, url: ids.next_id("order"),
    "allocator_node": lambda ids, url: ids.meteor(),
    "allocator_ticket": lambda ids, url: execute(url, "INSERT INTO allocator_ticket (type) VALUES ('order')"),
    "allocator_token": lambda ids, url: make_a_token(url),
    "allocator_number": lambda ids, url: take_a_number(url),
    "allocator_lease": lambda ids, url: ids.snowflake(),
}


def test_a_downgrade_that_would_forget_is_refused_before_its_first_table(fresh):
    """MySQL and MariaDB keep what they dropped before a refusal."""
    for table, use in USES.items():
        with Allocator(fresh) as ids:
            use(ids, fresh)
        drawn = picture(fresh)
        with pytest.raises(CommandError, match=f"{table} holds 1 rows"):
            migrate(fresh, "downgrade", "base")

        assert picture(fresh) == drawn
        execute(fresh, f"DELETE FROM {table}")
    execute(fresh, "DELETE FROM allocator_shard")
    migrate(fresh, "downgrade", "base")
    assert picture(fresh) == {}


@SQLITE
def test_a_tag_that_gave_no_id_does_not_stop_a_downgrade(fresh):
    """A host tests its migrations up and down, and one of them makes a tag."""
    with Allocator(fresh) as ids:
        ids.tags.create("order")
    migrate(fresh, "downgrade", "base")

    assert picture(fresh) == {}


@ON_TWO
def test_a_column_that_is_missing_in_tables_of_a_host_is_named(fresh, database):
    """As in the history of an application that is behind. Only whole tables are made."""
    assert problems(fresh) == []
    execute(fresh, f"DROP TABLE {VERSION_TABLE}", "ALTER TABLE allocator_segment DROP COLUMN skipped")
    with pytest.raises(SchemaOutOfDate, match="needs add_column allocator_segment skipped; do that"):
        database.upgrade_schema()


NEXT = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "next", "0001"

def upgrade():
    op.create_table("allocator_next", sa.Column("id", sa.BigInteger(), primary_key=True))
"""


@SQLITE
def test_the_next_revision_is_applied_to_these_tables(fresh, database, tmp_path, monkeypatch):
    scripts = tmp_path / "migrations"
    shutil.copytree(schema.script_folder(), scripts)
    (scripts / "versions" / "next.py").write_text(NEXT)
    monkeypatch.setattr(schema, "script_folder", lambda: scripts)
    monkeypatch.setattr(schema, "HEAD", "next")
    database.run(schema.upgrade, "here", 60)

    assert values(fresh, WRITTEN_DOWN) == ["next"]
    assert "allocator_next" in picture(fresh)


@SQLITE
def test_ids_are_drawn_without_the_tables_of_numbers(fresh):
    """As a host has them whose migrations are behind: only numbers want the tables that they are kept in."""
    execute(fresh, *(f"DROP TABLE {name}" for name in (VERSION_TABLE, "allocator_number_void", "allocator_number")))
    with Allocator(fresh) as ids:
        assert (ids.next_id("order"), ids.ticket("order")) == (1, 1)
    (problem,) = problems(fresh)

    assert problem == "here lacks table allocator_number, table allocator_number_void; run: allocator db upgrade"


@ON_TWO
def test_a_table_that_was_lost_comes_from_a_backup(fresh, database):
    """An upgrade would make an empty one, whose numbers begin again."""
    for name in ("allocator_lease", "allocator_segment"):
        execute(fresh, f"ALTER TABLE {name} RENAME TO x_lost")
        with pytest.raises(SchemaDamaged, match=f"lacks table {name}; restore"):
            database.upgrade_schema()
        (problem,) = problems(fresh)
        found = [one for one in examine(fresh) if one.name == "schema-damaged"]
        execute(fresh, f"ALTER TABLE x_lost RENAME TO {name}")

        assert (name in problem, problem.endswith(f"; {schema.RESTORE}")) == (True, True)
        assert name in found[0].found
        assert found[0].mend.startswith(schema.RESTORE)


def test_the_revisions_are_those_of_the_scripts():
    scripts = ScriptDirectory.from_config(schema.alembic_config())

    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == REVISIONS


@SQLITE
def test_alembic_waits_for_the_transaction_of_another_program(empty, monkeypatch):
    other = create_engine(empty, isolation_level="AUTOCOMMIT")
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        retried = Mock(side_effect=lambda seconds: connection.exec_driver_sql("ROLLBACK"))
        monkeypatch.setattr("allocator.database.store.sleep", retried)
        monkeypatch.setenv("ALLOCATOR_DATABASE_URL", empty)
        command.upgrade(schema.alembic_config(), "head")
    other.dispose()

    assert retried.call_count == 1
    assert problems(empty) == []


def at_once(code: str) -> list[Said]:
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(python, [code] * 4))


def test_several_upgrades_at_once(empty):
    done = at_once(f"from allocator.cli import main; main(['db', 'upgrade', '--url', {empty!r}])")

    assert [said.code for said in done] == [0] * 4, [said.err for said in done]


@SQLITE
def test_several_processes_at_once_make_the_embedded_schema(empty):
    code = f"from allocator import Allocator\nwith Allocator({empty!r}, timeout=60) as ids: print(ids.next_id('order'))"
    done = at_once(code)

    assert sorted(said.out for said in done) == ["1\n", "11\n", "21\n", "31\n"], [said.err for said in done]


@ON_SERVERS
def test_a_table_altered_by_hand_is_compared_by_alembic(fresh):
    columns = "max_value INT NOT NULL, step BIGINT NOT NULL, max_step BIGINT NOT NULL, id_limit BIGINT NOT NULL"
    create = f"CREATE TABLE allocator_segment (tag VARCHAR(64) NOT NULL, {columns})"
    execute(fresh, "DROP TABLE allocator_segment", create)
    words = "modify_type allocator_segment max_value INTEGER BIGINT"

    assert f"is not as revision {schema.HEAD} makes it: {words}" in "\n".join(problems(fresh))


def test_an_upgrade_that_died_half_way_or_before_it_was_written_down_is_run_again(empty):
    """By `allocator db upgrade`, and by Alembic: MySQL and MariaDB commit each table by itself."""
    for again in (lambda: with_schema(empty), lambda: migrate(empty, "upgrade", "head")):
        migrate(empty, "upgrade", "head")
        whole = picture(empty)
        for lost in ((), ("allocator_lease", "allocator_shard")):
            execute(empty, *(f"DROP TABLE {table}" for table in (VERSION_TABLE, *lost)))
            again()
            assert (picture(empty), values(empty, WRITTEN_DOWN)) == (whole, [schema.HEAD])
        migrate(empty, "downgrade", "base")
