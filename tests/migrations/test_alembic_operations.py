"""`op.create_tag` in a migration of the application's."""

import io
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from support.kit import SQLITE
from support.servers.administrator import execute, opened, values
from support.servers.databases import with_schema
from support.servers.fleets import make

from allocator import Allocator
from allocator.errors import InvalidSetting, SchemaOutOfDate, ServerReplaced
from allocator.schemes.failover import FLOOR


@contextmanager
def migration(url: str) -> Iterator[Any]:
    """As Alembic runs one: a transaction that is committed at its end, or rolled back."""
    with opened(url) as engine, engine.begin() as connection:
        yield Operations(MigrationContext.configure(connection))


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
    execute(fresh, "UPDATE allocator_shard SET new_tags_above = 5000000")
    with migration(fresh) as op:
        op.create_tag("order")
        op.create_tag("bill", start_after=7)

    assert values(fresh, "SELECT max_value FROM allocator_segment ORDER BY tag DESC") == [5_000_000, 7]


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


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_migration_that_fails_leaves_nothing_behind(fresh):
    execute(fresh, "CREATE TABLE orders (id BIGINT PRIMARY KEY)", "INSERT INTO orders (id) VALUES (4000)")
    with pytest.raises(Failed), migration(fresh) as op:
        op.create_tag("order", start_after_column="orders.id")
        raise Failed

    assert values(fresh, "SELECT tag FROM allocator_segment") == []


# -- what is refused


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


def test_a_fleet_is_refused(new_database):
    url = with_schema(new_database("sqlite"))
    make(url, 2)
    with pytest.raises(InvalidSetting, match="is in a fleet"), migration(url) as op:
        op.create_tag("invoice")


def test_the_operation_is_there_whoever_is_imported_first():
    for first in ("", ".integrations.alembic", ".integrations.alembic_operations"):
        code = f"import allocator{first}; from alembic import op; op.create_tag"
        subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)
