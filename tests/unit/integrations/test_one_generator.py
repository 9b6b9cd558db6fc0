"""A column with our default has no other generator: not in its table, and not in the migration that Alembic writes.

Annotations are not put off here, since SQLAlchemy would look for a local type among the names of the module.
"""

from io import StringIO
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations, ops
from sqlalchemy import BigInteger, Column, Identity, Integer, MetaData, Table
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.schema import CreateTable

from allocator import Allocator, AsyncAllocator
from allocator.errors import InvalidSetting
from allocator.integrations.sqlalchemy import primary_key

DIALECTS = ["postgresql", "mysql", "sqlite"]
GENERATORS = ("SERIAL", "AUTO_INCREMENT", "IDENTITY")
DEFAULTS: dict[str, Any] = {"blocking": Allocator("sqlite://"), "awaited": AsyncAllocator("sqlite://")}
OWN: dict[str, dict[str, Any]] = {
    "autoincrement=True": {"autoincrement": True},
    "autoincrement='ignore_fk'": {"autoincrement": "ignore_fk"},
    "Identity()": {"server_default": Identity()},
    "server_default=<next sequence value: orders_id_seq>": {
        "server_default": sa.Sequence("orders_id_seq").next_value()
    },
    "server_default=nextval('orders_id_seq')": {"server_default": sa.text("nextval('orders_id_seq')")},
}


@pytest.fixture(params=DEFAULTS.values(), ids=DEFAULTS)
def ids(request):
    return request.param


def migration(table: Table, dialect: str) -> str:
    """The statements of the migration that autogenerate writes for a new table."""
    code = render_python_code(ops.UpgradeOps([ops.CreateTableOp.from_table(table)]))
    told = StringIO()
    context = MigrationContext.configure(dialect_name=dialect, opts={"as_sql": True, "output_buffer": told})
    body = "\n".join(line.strip() for line in code.splitlines())
    exec(body, {"op": Operations(context), "sa": sa})
    return told.getvalue()


def generators(statements: str) -> list[str]:
    return [word for word in GENERATORS if word in statements]


def mapped(key: Any, own: Any = None) -> Any:
    """A class whose key is of a shared type, with what it adds to it."""

    class Base(DeclarativeBase):
        pass

    class Keyed:
        id: Mapped[Annotated[int, key]] = own

    class Order(Keyed, Base):
        __tablename__ = "orders"

    return Order.__table__


def test_a_migration_makes_no_second_generator(ids):
    """Alembic leaves our default out of it, and a key of integers alone would get one by `autoincrement="auto"`."""
    for dialect in DIALECTS:
        for own in [mapped_column(), mapped_column(Integer)]:
            assert generators(migration(mapped(primary_key(ids), own), dialect)) == [], (dialect, own)


@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_control_any_other_default_gets_a_second_generator_from_its_migration(dialect):
    table = Table("orders", MetaData(), Column("id", BigInteger, primary_key=True, default=lambda: 7))

    assert generators(str(CreateTable(table))) == []
    assert generators(migration(table, dialect)) != []


def test_a_generator_of_its_own_is_refused_when_the_class_is_mapped(ids, subtests):
    for found, options in OWN.items():
        for tag in (None, "order"):
            with subtests.test(found=found, tag=tag):
                with pytest.raises(InvalidSetting) as refused:
                    mapped(primary_key(ids, tag=tag), mapped_column(**options))

                assert str(refused.value) == (
                    f"orders.id has two generators, which would issue the same ids: tag {tag or 'orders'!r} and "
                    f"{found}; set autoincrement=False, and remove Identity() and server_default"
                )


def test_a_server_default_that_does_not_count_is_no_generator(ids):
    assert mapped(primary_key(ids, server_default="0"), mapped_column()).c.id.server_default.arg == "0"


def test_what_is_no_allocator_is_told_how_to_make_one():
    with pytest.raises(InvalidSetting, match="primary_key takes an allocator") as refused:
        primary_key(Allocator)  # type: ignore[arg-type]
    assert eval(str(refused.value).partition("write: ")[2]).column.primary_key
