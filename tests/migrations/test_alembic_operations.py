"""`op.create_tag` in a migration of the application's, and steps of 0.2 that do nothing any more."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine
from support.servers.administrator import execute, values
from support.servers.databases import with_schema

from allocator import Allocator
from allocator.errors import InvalidSetting, SchemaOutOfDate

SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
"""What is done to the tables of each database is in `tests/contract`."""


@contextmanager
def migration(url: str) -> Iterator[Any]:
    """As Alembic runs one: a transaction that is committed at its end, or rolled back."""
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield Operations(MigrationContext.configure(connection))
    finally:
        engine.dispose()


class Failed(Exception):
    """A later step of the migration."""


def test_a_tag_is_made_where_its_table_is_made(fresh):
    with migration(fresh) as op:
        op.create_table("orders", sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False))
        op.create_tag("order", step=10, start_after=1000)
    with Allocator(fresh) as ids:
        made = ids.next_id("order"), ids.tags.get("order").step, ids.tags.get("order").max_value

    assert made == (1001, 10, 1010)


@SQLITE
def test_a_tag_that_exists_keeps_its_settings_and_is_never_lowered(fresh):
    with Allocator(fresh) as ids:
        ids.tags.create("order", step=7, start_after=500)
        for after, found in ((100, 500), (900, 900)):
            with migration(fresh) as op:
                op.create_tag("order", step=10, start_after=after)
            assert (ids.tags.get("order").max_value, ids.tags.get("order").step) == (found, 7)


def test_a_tag_begins_after_a_column_that_exists(fresh):
    execute(fresh, "CREATE TABLE orders (id BIGINT PRIMARY KEY)", "INSERT INTO orders (id) VALUES (4000)")
    with Allocator(fresh) as ids:
        for greatest in (4000, 5000):
            with migration(fresh) as op:
                op.create_tag("order", start_after_column="orders.id")
            assert ids.tags.get("order").max_value == greatest
            execute(fresh, "UPDATE orders SET id = 5000")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_a_tag_begins_above_ids_that_a_failover_forgot_unless_its_start_is_said(fresh):
    execute(fresh, "UPDATE allocator_failover SET first_value = 5000000")
    with migration(fresh) as op:
        op.create_tag("order")
        op.create_tag("bill", start_after=7)

    assert values(fresh, "SELECT max_value FROM allocator_segment ORDER BY tag DESC") == [5_000_000, 7]


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_migration_that_fails_leaves_nothing_behind(fresh):
    execute(fresh, "CREATE TABLE orders (id BIGINT PRIMARY KEY)", "INSERT INTO orders (id) VALUES (4000)")
    with pytest.raises(Failed), migration(fresh) as op:
        op.create_tag("order", start_after_column="orders.id")
        raise Failed

    assert values(fresh, "SELECT tag FROM allocator_segment") == []


# -- as Alembic runs the revisions of an application

ENV = """
from alembic import context
from sqlalchemy import create_engine

engine = create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(connection=connection, transaction_per_migration=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""
REVISION = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = {revision!r}, {before!r}

def upgrade():
    {up}

def downgrade():
    {down}
"""
TABLE = "op.create_table('orders', sa.Column('id', sa.BigInteger, primary_key=True), sa.Column('what', sa.String(9)))"
ARCHIVE = "op.create_table('archive', sa.Column('id', sa.BigInteger, primary_key=True, autoincrement=False))"
REVISIONS = {
    "a": (f"{TABLE}; op.create_tag('order', start_after=500)", "op.drop_table('orders')"),
    "b": (
        "op.takeover('start', 'orders.id', tag='order', duration='7d')",
        "op.takeover('back', 'orders.id', duration='1h')",
    ),
    "c": ("op.takeover('finish', place='orders.id', idle='0s')", "op.takeover('back', 'orders.id')"),
    "d": (
        f"{ARCHIVE}; op.bind_tag('order', 'archive.id'); op.unbind_tag(place='archive.id')",
        "op.unbind_tag('archive.id'); op.bind_tag(tag='order', place='archive.id'); op.drop_table('archive')",
    ),
}
"""As 0.2 would have made it."""


@SQLITE
def test_a_history_that_took_over_and_bound_runs_up_and_down_and_up(fresh, tmp_path, caplog):
    (tmp_path / "versions").mkdir()
    (tmp_path / "env.py").write_text(ENV)
    before = None
    for name, (up, down) in REVISIONS.items():
        text = REVISION.format(revision=name, before=before, up=up, down=down)
        (tmp_path / "versions" / f"{name}.py").write_text(text)
        before = name
    config = Config()
    config.set_main_option("script_location", str(tmp_path))
    config.set_main_option("path_separator", "newline")
    config.attributes["url"] = fresh
    said = []
    for go, to in ((command.upgrade, "head"), (command.downgrade, "a"), (command.upgrade, "head")):
        caplog.clear()
        go(config, to)
        execute(fresh, f"INSERT INTO orders (id) VALUES ({len(said)})")
        said.append([one.getMessage().split()[0] for one in caplog.records if one.name == "allocator"])

    up = ["op.takeover", "op.takeover", "op.bind_tag", "op.unbind_tag"]
    assert said == [up, ["op.unbind_tag", "op.bind_tag", "op.takeover", "op.takeover"], up]
    assert values(fresh, "SELECT version_num FROM alembic_version") == ["d"]
    assert values(fresh, "SELECT max_value FROM allocator_segment") == [500]
    assert values(fresh, "SELECT COUNT(*) FROM orders") == [3]


# -- what is refused


@SQLITE
def test_without_the_tables_it_says_what_to_run(empty):
    with pytest.raises(SchemaOutOfDate, match="run: allocator db upgrade"), migration(empty) as op:
        op.create_tag("order")


def test_a_tag_is_not_printed_as_sql_and_what_does_nothing_prints_nothing():
    printed = io.StringIO()
    op = Operations(
        MigrationContext.configure(dialect_name="postgresql", opts={"as_sql": True, "output_buffer": printed})
    )
    with pytest.raises(
        InvalidSetting, match="cannot be printed as SQL .* tags create order --limit 9 --start-after 5$"
    ):
        op.create_tag("order", start_after=5, limit=9)
    op.takeover("start", "orders.id", tag="order")

    assert printed.getvalue() == ""


def test_one_of_several_shards_is_refused(new_database):
    urls = [with_schema(new_database("sqlite")) for _ in range(2)]
    with Allocator(shards=urls) as ids:
        ids.next_id("order")
    with pytest.raises(InvalidSetting, match="is one of several shards"), migration(urls[0]) as op:
        op.create_tag("invoice")


@pytest.mark.skipif(find_spec("alembic.runtime.plugins") is None, reason="Alembic has plugins from 1.18 on")
def test_the_operations_are_there_whoever_is_imported_first():
    for first in ("", ".integrations.alembic", ".integrations.alembic_operations"):
        used = "op.create_tag, op.bind_tag, op.unbind_tag, op.takeover"
        code = f"import allocator{first}; from alembic import op; {used}"
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)
