"""Sequences as defaults of columns: every way in which SQLAlchemy inserts rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import render_python_code
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.operations.ops import CreateTableOp, UpgradeOps
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
    TypeDecorator,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError, OperationalError, StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.applications.sqlalchemy_models import ROWS, keys, models, table_of

from allocator import Allocator, Tag
from allocator.database.address import address_of
from allocator.errors import InvalidDatabase, InvalidSetting
from allocator.integrations.sqlalchemy import FromTable, primary_key

SQLITE = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
TWO = pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
POSTGRES = pytest.mark.parametrize("kind", ["postgres"], indirect=True)


@pytest.fixture
def base(ids: Allocator, engine: Engine) -> Any:
    made = models(ids)
    made.metadata.create_all(engine)
    return made


# -- every way to insert


def test_a_flush_gives_parents_and_children_their_ids(engine, base):
    with Session(engine) as session:
        orders = [base.Order(name="a", items=[base.Item(), base.Item()]), base.Order(name="b", items=[base.Item()])]
        session.add_all(orders)
        session.commit()

        assert [order.id for order in orders] == [1, 2]
        assert {item.order_id for item in session.scalars(select(base.Item))} == {1, 2}
        assert sorted(session.scalars(select(base.Item.id))) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql"], indirect=True)
def test_a_flush_sends_what_it_sends_for_keys_that_are_given_by_hand(engine, base):
    """And not row by row, as MySQL's without RETURNING, or with a question for keys that the default has given."""
    said: list[tuple[str, int]] = []
    event.listen(engine, "before_cursor_execute", lambda *args: said.append((args[2], len(args[3]))))
    for keys_by_hand in ({"id": 100}, {"id": 101}, {"id": 102}), ({}, {}, {}):
        with Session(engine) as session:
            session.add_all(base.Order(name="x", **given) for given in keys_by_hand)
            session.commit()

    by_hand, by_default = (said[: len(said) // 2], said[len(said) // 2 :])
    assert by_default == by_hand
    assert len(by_default) == 1


@TWO
def test_a_key_that_is_given_by_hand_stays(engine, base):
    with Session(engine) as session:
        session.add_all([base.Order(name="a", id=77), base.Order(name="b")])
        session.commit()

        assert sorted(session.scalars(select(base.Order.id))) == [1, 77]


INSERTS: dict[str, Callable[[Session, Any], Any]] = {
    "executemany": lambda session, order: session.connection().execute(insert(order.__table__), ROWS),
    "values": lambda session, order: session.connection().execute(insert(order.__table__).values(ROWS)),
    "one by one": lambda session, order: [session.execute(insert(order).values(**row)) for row in ROWS],
    "mappings": lambda session, order: session.bulk_insert_mappings(order, ROWS),
    "objects": lambda session, order: session.bulk_save_objects([order(**row) for row in ROWS]),
    "bulk": lambda session, order: session.execute(insert(order), ROWS),
}


@pytest.mark.statements
def test_each_row_has_its_own_id(engine, base):
    found = {}
    with Session(engine) as session:
        for way, act in INSERTS.items():
            act(session, base.Order)
            session.commit()
            found[way] = session.execute(select(base.Order.id, base.Order.name).order_by(base.Order.id)).all()[-3:]

    assert list(found.values()) == [
        [(number, "a"), (number + 1, "b"), (number + 2, "c")] for number in range(1, 1 + 3 * len(INSERTS), 3)
    ]


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"], indirect=True)
def test_returning_gives_the_ids_of_many_rows(engine, base):
    with Session(engine) as session:
        found = session.scalars(insert(base.Order).returning(base.Order.id, sort_by_parameter_order=True), ROWS)

        assert list(found) == [1, 2, 3]


@TWO
def test_ids_of_a_transaction_that_is_rolled_back_are_a_gap(engine, base, ids):
    with Session(engine) as session:
        session.add(base.Order(name="lost"))
        session.flush()
        session.rollback()
        session.add(base.Order(name="kept"))
        session.commit()

        assert session.scalars(select(base.Order.id)).all() == [2]
    assert ids.next_id("order") == 3


@TWO
def test_more_rows_than_a_segment_has(engine, base, ids):
    ids.tags.create("plain", step=10, max_step=10)
    table = table_of(ids, engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"name": str(number)} for number in range(1000)])

    assert keys(engine, table) == list(range(1, 1001))


# -- a table that a migration made


@pytest.mark.parametrize("kind", ["postgres", "mysql"], indirect=True)
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "control"])
def test_plain_sql_takes_no_id_of_the_tag(engine, ids, ours):
    """The database would count from 1 too, by a generator that Alembic writes for a key without a default."""
    default = ids.sequence("plain") if ours else (lambda: ids.next_id("plain"))
    name = Column("name", String(20))
    table = Table("plain", MetaData(), Column("id", BigInteger, primary_key=True, default=default), name)
    code = render_python_code(UpgradeOps([CreateTableOp.from_table(table)]))
    with engine.begin() as connection:
        operations = Operations(MigrationContext.configure(connection))
        exec("\n".join(line.strip() for line in code.splitlines()), {"op": operations, "sa": sqlalchemy})

    def write_plainly() -> None:
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO plain (name) VALUES ('x')"))

    if ours:
        with pytest.raises((IntegrityError, OperationalError)):
            write_plainly()
        with engine.begin() as connection:
            connection.execute(insert(table), ROWS)
        assert keys(engine, table) == [1, 2, 3]
    else:
        write_plainly()
        with engine.begin() as connection, pytest.raises(IntegrityError):
            connection.execute(insert(table), ROWS)


# -- an INSERT from a SELECT


def from_select(table: Table) -> Any:
    return insert(table).from_select(["name"], select(table.c.name))


@TWO
def test_an_insert_from_a_select_is_refused(engine, ids):
    table = table_of(ids, engine)
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        for rows in (None, None, [{}, {}]):  # the second time as compiled before
            with pytest.raises(StatementError, match="all rows of this statement would get the same id") as refused:
                connection.execute(from_select(table), rows)
            assert isinstance(refused.value.orig, InvalidSetting)

    assert keys(engine, table) == [1, 2, 3]


@POSTGRES
def test_an_insert_from_a_select_in_a_common_table_is_refused(engine, ids):
    table = table_of(ids, engine)
    inserted = from_select(table).returning(table.c.id).cte("inserted")
    beside = Table("beside", MetaData(), Column("number", Integer, primary_key=True))
    beside.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        with pytest.raises(StatementError, match="all rows of this statement"):
            connection.execute(select(inserted))
        with pytest.raises(StatementError, match="all rows of this statement"):
            connection.execute(insert(beside).values(number=1).add_cte(inserted))


@TWO
def test_control_what_an_insert_from_a_select_does_with_any_other_default(engine, ids):
    """One call for all rows: a key is refused by the database, and a column without a unique key has duplicates."""
    for unique in (True, False):
        table = Table(
            f"control{unique:d}",
            MetaData(),
            Column("id", Integer, primary_key=True),
            Column("number", BigInteger, default=lambda: ids.next_id("control"), unique=unique),
            Column("name", String(20)),
        )
        table.create(engine)
        with engine.begin() as connection:
            connection.execute(insert(table), ROWS)
            before = ids.next_id("control")
        with engine.connect() as connection:
            if unique:
                with pytest.raises(IntegrityError):
                    connection.execute(from_select(table))
            else:
                connection.execute(from_select(table))
                copied = connection.scalars(select(table.c.number).where(table.c.number > before))
                assert list(copied) == [before + 1] * 3


def versioned(engine: Engine, onupdate: Any, name: str = "versioned") -> Table:
    """A table with three rows, of which each change is to draw a version."""
    version = Column("version", BigInteger, server_default="0", onupdate=onupdate)
    table = Table(name, MetaData(), Column("id", Integer, primary_key=True), Column("name", String(20)), version)
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
    return table


@TWO
def test_an_update_is_refused_also_while_ids_are_in_memory(engine, ids):
    for name, drawn in (("sequence", ids.sequence("sequence")), ("table", FromTable(ids))):
        ids.next_id(name)
        table = versioned(engine, drawn, name)
        with engine.begin() as connection:
            for rows in (None, [{}, {}]):
                with pytest.raises(
                    StatementError,
                    match="cannot be the onupdate of a column, since all rows of a statement would get the same id",
                ) as refused:
                    connection.execute(update(table).values(name="x"), rows)
                assert isinstance(refused.value.orig, InvalidSetting)

            assert set(connection.scalars(select(table.c.version))) == {0}, name


@TWO
def test_a_flush_that_updates_is_refused_too(engine, ids):
    class Base(DeclarativeBase):
        pass

    class Named(Base):
        __tablename__ = "named"
        id: Mapped[int] = primary_key(ids)
        version: Mapped[int] = mapped_column(BigInteger, default=0, onupdate=ids.sequence("version"))
        name: Mapped[str] = mapped_column(String(20))

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(one := Named(name="a"))
        session.commit()
        one.name = "b"
        with pytest.raises((StatementError, InvalidSetting), match="cannot be the onupdate of a column"):
            session.commit()


@POSTGRES
def test_an_update_in_a_common_table_is_refused(engine, ids):
    table = versioned(engine, ids.sequence("version"))
    changed = update(table).values(name="x").returning(table.c.id).cte("changed")
    with engine.connect() as connection, pytest.raises(StatementError, match="cannot be the onupdate of a column"):
        connection.execute(select(changed))


def test_ids_of_a_block_can_be_numbered_in_the_select(engine, ids):
    """What the refusal advises."""
    table = table_of(ids, engine)
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        block = ids.reserve("plain", 3)
        number = func.row_number().over(order_by=table.c.id) + (block.start - 1)
        connection.execute(insert(table).from_select(["id", "name"], select(number, table.c.name)))

    assert keys(engine, table) == [1, 2, 3, *block]


# -- SQLite: one writer


@SQLITE
def test_one_file_for_ids_and_rows_is_refused_while_a_transaction_holds_it(fresh, ids):
    engine = create_engine(fresh)
    base = models(ids)
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(base.Order(name="a", items=[base.Item()]))  # its own INSERT begins the transaction
        with pytest.raises(InvalidDatabase, match="'item': no ids are in memory, and a claim would wait"):
            session.commit()
        session.rollback()
        ids.next_id("item")
        session.add(base.Order(name="a", items=[base.Item()]))
        session.commit()

        assert (session.scalars(select(base.Order.id)).all(), session.scalars(select(base.Item.id)).all()) == ([2], [2])
    with engine.begin() as connection:
        table = table_of(ids, engine)
        connection.execute(base.Order.__table__.delete().where(base.Order.id == 0))
        with pytest.raises(StatementError, match="use a separate file for the allocator"):
            connection.execute(insert(table), ROWS)
    engine.dispose()


# -- the limit of a tag follows the column that is mapped

SERVERS = pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)
WIDTHS: dict[str, Any] = {"small": SmallInteger(), "usual": Integer(), "big": BigInteger()}
LIMITS = {"small": 2**15 - 1, "usual": 2**31 - 1, "big": 2**63 - 1}
VARIANTS: dict[str, Any] = {
    "variant": (Integer().with_variant(BigInteger(), "postgresql", "mysql", "mariadb"), 2**63 - 1),
    "users": (type("Key", (TypeDecorator,), {"impl": Integer, "cache_ok": True})(), 2**31 - 1),
    "untyped": (None, 2**63 - 1),
}


def tables(ids: Any, types: dict[str, Any]) -> dict[str, Table]:
    metadata = MetaData()
    return {
        name: Table(
            name, metadata, Column("id", kind, primary_key=True, default=ids.sequence(name)), Column("name", String(20))
        )
        for name, kind in types.items()
    }


@SERVERS
def test_a_tag_that_is_made_by_an_insert_ends_where_its_column_does(engine, fresh):
    """Either way in which SQLAlchemy sends many rows."""
    widths = {f"{name}{way}": kind for name, kind in WIDTHS.items() for way in ("_values", "_executemany")}
    with Allocator(fresh, step=1, max_step=1) as ids:
        for name, table in tables(ids, widths).items():
            table.create(engine)
            with engine.begin() as connection:
                if name.endswith("_values"):
                    connection.execute(insert(table).values(ROWS))
                else:
                    connection.execute(insert(table), ROWS)

        assert {name: ids.tags.get(name).limit for name in widths} == {
            name: LIMITS[name.partition("_")[0]] for name in widths
        }


@SERVERS
def test_a_type_counts_as_the_database_has_it(engine, ids):
    plain = dict.fromkeys(VARIANTS, BigInteger())
    for name, table in tables(ids, {name: kind for name, (kind, _) in VARIANTS.items()}).items():
        tables(ids, plain)[name].create(engine)
        with engine.begin() as connection:
            connection.execute(insert(table), {})

    assert {name: ids.tags.get(name).limit for name in VARIANTS} == {
        name: limit for name, (_, limit) in VARIANTS.items()
    }


@POSTGRES
def test_a_flush_tells_the_tag_its_column(engine, ids):
    class Base(DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[int] = mapped_column(primary_key=True, default=ids.sequence("order"))

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Order(), Order()])
        session.commit()

    assert ids.tags.get("order") == Tag("order", 1000, limit=2**31 - 1)


@SQLITE
def test_sqlite_keeps_64_bits_in_any_column(engine, ids):
    table = tables(ids, WIDTHS)["small"]
    table.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(table))

    assert ids.tags.get("small").limit == 2**63 - 1


@POSTGRES
def test_a_tag_that_goes_on_further_than_its_column_is_told_of_once(engine, ids, caplog):
    ids.tags.create("usual", step=1, max_step=1)
    ids.next_id("usual")
    table = tables(ids, WIDTHS)["usual"]
    table.create(engine)
    for _ in range(5):
        with engine.begin() as connection:
            connection.execute(insert(table))

    assert [record.getMessage().replace("(11)", "") for record in caplog.records if record.name == "allocator"] == [
        (
            "tag 'usual' has the limit 9223372036854775807, but usual.id (INTEGER) holds ids only up to 2147483647: "
            "INSERTs above that will fail; lower the limit: allocator tags set usual --limit 2147483647"
            f" --url {address_of(engine).shown}"
        )
    ]
