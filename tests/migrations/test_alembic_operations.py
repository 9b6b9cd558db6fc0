"""`op.create_tag`, `op.bind_tag`, `op.unbind_tag` and `op.takeover` in a migration of the application's."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable, Iterator
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
from sqlalchemy.exc import DBAPIError
from support.servers.administrator import execute, values
from support.servers.databases import with_schema

from allocator import Allocator
from allocator.errors import InvalidSetting, SchemaOutOfDate

SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
"""What is done to the tables of each database is in `tests/contract`."""
COUNTED = {"postgres": "CREATE TABLE orders (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what VARCHAR(9))"}
COUNTED["mysql"] = COUNTED["mariadb"] = "CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(9))"
INSERT = "INSERT INTO orders (what) VALUES ('tea')"


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


def state(url: str) -> list[str]:
    return values(url, "SELECT state FROM allocator_takeover")


def test_a_tag_is_made_and_bound_where_its_table_is_made(fresh):
    with migration(fresh) as op:
        op.create_table("orders", sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False))
        op.create_tag("order", step=10, start_after=1000)
        op.bind_tag("order", "orders.id")
    with Allocator(fresh) as ids:
        made = ids.next_id("order"), ids.tags.get("order").step, ids.tags.get("order").max_value

    assert made == (1001, 10, 1010)
    assert [place.rpartition(".")[0].rpartition(".")[2] for place in values(fresh, BINDINGS)] == ["orders"]
    for _ in range(2):  # again, it changes nothing
        with migration(fresh) as op:
            op.unbind_tag("orders.id")
        assert values(fresh, BINDINGS) == []


BINDINGS = "SELECT place FROM allocator_binding"


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


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_migration_that_fails_leaves_nothing_behind(fresh):
    execute(fresh, COUNTED["postgres"])
    with pytest.raises(Failed), migration(fresh) as op:
        op.create_tag("other")
        op.bind_tag("other", "orders.id")
        op.unbind_tag("orders.id")
        op.takeover("start", "orders.id", tag="order")
        raise Failed

    assert values(fresh, "SELECT tag FROM allocator_segment") == state(fresh) == values(fresh, BINDINGS) == []
    assert values(fresh, "SELECT seqmax FROM pg_sequence WHERE seqrelid = 'orders_id_seq'::regclass") == [2**63 - 1]


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_column_is_taken_over_finished_and_given_back(kind, fresh):
    execute(fresh, COUNTED[kind], INSERT)
    asked = "SELECT current_setting('lock_timeout')" if kind == "postgres" else "SELECT @@lock_wait_timeout"
    with migration(fresh) as op:
        before = op.get_bind().exec_driver_sql(asked).scalar()
        for _ in range(2):  # again, it changes nothing
            op.takeover("start", "orders.id", tag="order")
        assert op.get_bind().exec_driver_sql(asked).scalar() == before
        op.bind_tag("order", "orders.id")  # the takeover is the binding
        op.unbind_tag("orders.id")
    with Allocator(fresh) as ids:
        execute(fresh, INSERT, f"INSERT INTO orders (id) VALUES ({ids.next_id('order')})")
        assert state(fresh) == ["started"]
        with pytest.raises(InvalidSetting, match="may still be written the old way"), migration(fresh) as op:
            op.takeover("finish", "orders.id")
        execute(fresh, "UPDATE allocator_takeover SET given = given + 1, given_at = 0")
        with migration(fresh) as op:
            op.takeover("finish", "orders.id")
        assert state(fresh) == ["finished"]
        with pytest.raises(DBAPIError):
            execute(fresh, INSERT)
        with migration(fresh) as op:
            op.takeover("back", "orders.id", duration="1h")
            op.takeover("back", "orders.id")
        assert state(fresh) == ["given back"]
        execute(fresh, INSERT, f"INSERT INTO orders (id) VALUES ({ids.next_id('order')})")

    assert len(values(fresh, "SELECT DISTINCT id FROM orders")) == 5


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
    "a": (TABLE, "op.drop_table('orders')"),
    "b": ("op.takeover('start', 'orders.id', tag='order')", "op.takeover('back', 'orders.id')"),
    "c": (
        f"{ARCHIVE}; op.bind_tag('order', 'archive.id')",
        "op.unbind_tag('archive.id'); op.drop_table('archive')",
    ),
}


@pytest.mark.parametrize("kind", ["postgres"])
def test_revisions_go_up_and_down_and_up(kind, fresh, tmp_path):
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
    found = []
    for go, to in ((command.upgrade, "c"), (command.downgrade, "a"), (command.upgrade, "c")):
        go(config, to)
        execute(fresh, INSERT)
        found.append((state(fresh), len(values(fresh, BINDINGS)), values(fresh, "SELECT * FROM alembic_version")))

    assert found == [(["started"], 1, ["c"]), (["given back"], 0, ["a"]), (["started"], 1, ["c"])]
    assert len(values(fresh, "SELECT DISTINCT id FROM orders")) == 3


# -- what is refused


@SQLITE
def test_without_the_tables_it_says_what_to_run(empty):
    with pytest.raises(SchemaOutOfDate, match="run: allocator db upgrade"), migration(empty) as op:
        op.create_tag("order")


STEPS: dict[str, tuple[Callable[[Any], None], str]] = {
    "create": (lambda op: op.create_tag("order"), "allocator tags create order"),
    "bind": (lambda op: op.bind_tag("order", "orders.id"), "allocator tags bind order orders.id"),
    "unbind": (lambda op: op.unbind_tag("orders.id"), "allocator tags unbind orders.id"),
    "start": (
        lambda op: op.takeover("start", "orders.id", tag="order"),
        "allocator takeover start orders.id --tag order",
    ),
    "back": (lambda op: op.takeover("back", "orders.id"), "allocator takeover back orders.id"),
}


def test_nothing_is_printed_as_sql():
    printed = MigrationContext.configure(
        dialect_name="postgresql", opts={"as_sql": True, "output_buffer": io.StringIO()}
    )
    for act, instead in STEPS.values():
        with pytest.raises(InvalidSetting, match="cannot be printed as SQL") as refused:
            act(Operations(printed))

        assert str(refused.value).endswith(f"run instead: {instead}")


@pytest.mark.parametrize("kind", ["sqlite"])
def test_steps_that_nobody_knows_are_refused(fresh):
    for act, sentence in (
        (lambda op: op.takeover("begin", "orders.id", tag="order"), "has the steps start, finish, back"),
        (lambda op: op.takeover("start", "orders.id"), "names its tag"),
        (lambda op: op.takeover("start", "orders.id", tag="order"), "a tag cannot take over a column of SQLite"),
        (lambda op: op.takeover("finish", "orders.id", idle="soon"), "a duration is a number with"),
    ):
        with pytest.raises(InvalidSetting, match=sentence), migration(fresh) as op:
            act(op)


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
