"""An application that runs Alembic itself: our tables left alone, in its own history, or as SQL; and `op.create_tag` in
its migrations."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import BigInteger, Column, MetaData, String, Table, inspect, text
from support.kit import ON_POSTGRES, SQLITE, output, run
from support.servers.administrator import administrator, execute, opened, values
from support.servers.databases import problems
from support.servers.fleets import make

from allocator import Allocator
from allocator.database import schema
from allocator.database.tables import VERSION_TABLE
from allocator.errors import InvalidSetting, SchemaOutOfDate, ServerReplaced
from allocator.integrations import alembic as hooks
from allocator.schemes.failover import FLOOR

ENV = """
from alembic import context
from allocator.integrations.alembic import metadata as allocator_metadata
from sqlalchemy import BigInteger, Column, MetaData, Table, create_engine

metadata = MetaData()
Table("orders", metadata, Column("id", BigInteger, primary_key=True))

engine = create_engine(context.config.attributes["url"])
try:
    with engine.connect() as connection:
        context.configure(connection=connection, {options})
        with context.begin_transaction():
            context.run_migrations()
finally:
    engine.dispose()
"""
ALONE = "target_metadata=metadata"
TOGETHER = "target_metadata=[metadata, allocator_metadata]"
WITHOUT = f"{ALONE}, autogenerate_plugins=['alembic.autogenerate.*', '~alembic.autogenerate.allocator']"


def host(folder: Path, url: str, options: str) -> Config:
    """An application's `env.py`, with such options, and a folder for its revisions."""
    (folder / "versions").mkdir(parents=True)
    (folder / "env.py").write_text(ENV.format(options=options))
    (folder / "script.py.mako").write_text((schema.script_folder() / "script.py.mako").read_text())
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("path_separator", "newline")
    config.attributes["url"] = url
    return config


def operations(config: Config) -> str:
    """What autogenerate writes into the next revision."""
    made = command.revision(config, message="next", autogenerate=True, head="base", splice=True)
    return Path(made.path).read_text()


def table_names(url: str) -> set[str]:
    with opened(url) as engine:
        return set(inspect(engine).get_table_names())


# -- left alone


@ON_POSTGRES
def test_alembic_makes_no_table_again_that_stands_in_a_later_schema_of_the_search_path(fresh):
    execute(fresh, "CREATE SCHEMA eyes", f"DELETE FROM {VERSION_TABLE}")
    with opened(f"{fresh}?options=-csearch_path%3Deyes,public") as engine, engine.begin() as connection:
        schema.migrate(connection)

    assert values(fresh, "SELECT tablename FROM pg_tables WHERE schemaname = 'eyes'") == []


@SQLITE
def test_autogenerate_leaves_our_tables_alone(fresh, tmp_path):
    written = operations(host(tmp_path / "host", fresh, ALONE))

    assert "create_table('orders'" in written
    assert "allocator_" not in written


@SQLITE
def test_control_without_the_plugin_it_drops_them(fresh, tmp_path):
    written = operations(host(tmp_path / "host", fresh, WITHOUT))

    assert "drop_table('allocator_segment')" in written
    assert f"drop_table('{VERSION_TABLE}')" in written


@SQLITE
def test_the_plugin_compares_what_the_host_names_itself(fresh):
    """Its own table may begin as ours do; ours that it names are in its history."""
    metadata = MetaData()
    Table("allocator_of_seats", metadata, Column("id", BigInteger, primary_key=True))
    with administrator(fresh) as connection:
        metadata.create_all(connection)
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        hooks.metadata.tables["allocator_segment"].to_metadata(metadata).append_column(Column("note", String))
        ((what, _, table, column),) = compare_metadata(MigrationContext.configure(connection), metadata)

        assert (what, table, column.name) == ("add_column", "allocator_segment", "note")


def test_the_plugin_is_a_module_as_alembic_wants_it_now_and_did_at_first():
    """1.18.0 to 1.20.0 iterate over what the entry point gives: a plain module would end every command of Alembic."""
    (found,) = entry_points(group="alembic.plugins", name="alembic.autogenerate.allocator")
    module = found.load()

    assert module is hooks
    assert isinstance(module, ModuleType)
    assert list(module) == [module]


# -- in the application's own history


def test_a_second_metadata(empty, tmp_path):
    config = host(tmp_path / "host", empty, TOGETHER)
    command.revision(config, message="with ids", autogenerate=True)
    command.upgrade(config, "head")

    with Allocator(empty) as ids:
        assert ids.next_id("order") == 1
    command.check(config)
    assert {"allocator_segment", "orders"} <= table_names(empty)
    assert VERSION_TABLE not in table_names(empty)


# -- statements for a DBA


def run_statements(url: str, words: str) -> None:
    with administrator(url) as connection:
        for statement in words.split(";\n"):
            if statement.strip().strip(";"):
                connection.execute(text(statement.strip().strip(";").replace(":", r"\:")))


def test_the_statements_for_a_dba_make_the_schema(empty):
    run_statements(empty, run(empty, "db", "upgrade", "--sql").out)

    assert problems(empty) == []
    with Allocator(empty) as ids:
        assert ids.next_id("order") == 1


def test_the_statements_need_no_database():
    for url, words in (
        ("postgresql://nobody@nowhere.invalid/ids", ()),
        ("mysql://nobody@nowhere.invalid/ids", ["--json"]),
    ):
        assert "CREATE TABLE IF NOT EXISTS allocator_segment" in run(url, "db", "upgrade", "--sql", *words).out


def test_the_integration_is_the_only_part_that_a_host_imports_for_its_env():
    code = "import sys, allocator.integrations.alembic; print('alembic' in sys.modules)"

    assert output(code) == "False\n"


# -- `op.create_tag`


@contextmanager
def migration(url: str) -> Iterator[Any]:
    """As Alembic runs one: a transaction that is committed at its end, or rolled back."""
    with opened(url) as engine, engine.begin() as connection:
        yield Operations(MigrationContext.configure(connection))


class Failed(Exception):
    """A later step of the migration."""


ORDERS = ("CREATE TABLE orders (id BIGINT PRIMARY KEY)", "INSERT INTO orders (id) VALUES (4000)")
COLUMNS = "tag, max_value, step, max_step, id_limit"
TAG = f"INSERT INTO allocator_segment ({COLUMNS}, move) SELECT 'order', 500, 7, 9, 9000, move FROM allocator_shard"
MADE = {
    "where its table is made": ((), {"step": 10, "start_after": 1000}, 1000, 10),
    "after a column that exists": (ORDERS, {"start_after_column": "orders.id"}, 4000, 10),
    "above ids that a failover forgot": (("UPDATE allocator_shard SET new_tags_above = 5000000",), {}, 5_000_000, 10),
    "where its start is said": (("UPDATE allocator_shard SET new_tags_above = 5000000",), {"start_after": 7}, 7, 10),
    "one that exists is never lowered": ((TAG,), {"step": 10, "start_after": 100}, 500, 7),
    "and raised": ((TAG,), {"step": 10, "start_after": 900}, 900, 7),
    "and raised above a column": ((TAG, *ORDERS), {"start_after_column": "orders.id"}, 4000, 7),
}
"""What is there before, what the migration says, and the value and step of the tag afterwards."""


@pytest.mark.parametrize(("before", "given", "value", "step"), MADE.values(), ids=MADE)
def test_a_tag_is_made_by_a_migration(fresh, before, given, value, step):
    execute(fresh, *before)
    with migration(fresh) as op:
        op.create_table("bills", Column("id", BigInteger, primary_key=True, autoincrement=False))
        op.create_tag("order", **given)

    with Allocator(fresh) as ids:
        made = ids.tags.get("order")
        assert (made.max_value, made.step) == (value, step)
        assert ids.next_id("order") == value + 1


def test_after_a_failover_that_nobody_noted_no_tag_is_made_before_an_upgrade(fresh):
    execute(fresh, "UPDATE allocator_shard SET server_run = 'before'")
    with pytest.raises(ServerReplaced, match="run: allocator db upgrade"), migration(fresh) as op:
        op.create_tag("order")
    assert values(fresh, "SELECT tag FROM allocator_segment") == []

    with Allocator(fresh) as ids:
        ids.create_tables()  # as `allocator db upgrade`
    with migration(fresh) as op:
        op.create_tag("order")
    assert values(fresh, "SELECT max_value FROM allocator_segment")[0] >= FLOOR


@ON_POSTGRES
def test_a_migration_that_fails_leaves_nothing_behind(fresh):
    execute(fresh, *ORDERS)
    with pytest.raises(Failed), migration(fresh) as op:
        op.create_tag("order", start_after_column="orders.id")
        raise Failed

    assert values(fresh, "SELECT tag FROM allocator_segment") == []


@SQLITE
def test_without_the_tables_it_says_what_to_run(empty):
    with pytest.raises(SchemaOutOfDate, match="run: allocator db upgrade"), migration(empty) as op:
        op.create_tag("order")


def test_a_tag_is_not_printed_as_sql():
    op = Operations(
        MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": io.StringIO()})
    )
    with pytest.raises(
        InvalidSetting, match="cannot be printed as SQL .* tags create order --limit 9 --start-after 5$"
    ):
        op.create_tag("order", start_after=5, limit=9)


@SQLITE
def test_a_fleet_is_refused(fresh):
    make(fresh, 2)
    with pytest.raises(InvalidSetting, match="is in a fleet"), migration(fresh) as op:
        op.create_tag("invoice")


def test_the_operation_is_there_whoever_is_imported_first():
    strict = "import warnings; warnings.simplefilter('error')"
    for first in ("", ".integrations.alembic", ".integrations.alembic_operations"):
        output(f"{strict}; import allocator{first}; from alembic import op; op.create_tag")
