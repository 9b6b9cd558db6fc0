"""Public ids as the type of a column: text in Python, the id in the table."""

from typing import Annotated, Any

import pytest
from alembic.autogenerate import compare_metadata, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import ops
from sqlalchemy import MetaData, func, insert, select, text
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from support.applications.sqlalchemy_models import ROWS, models
from support.kit import SQLITE

from allocator import PublicIds
from allocator.errors import InvalidId
from allocator.integrations.sqlalchemy import PublicId, primary_key

orders = PublicIds(bytes(range(32)), prefix="ord_")
ONE, TWO, THREE = map(orders.encode, (1, 2, 3))


@pytest.fixture
def base(engine, ids):
    made = models(ids, orders)
    made.metadata.create_all(engine)
    return made


def numbers(engine: Any, table: str = "order", column: str = "id") -> list[int]:
    with engine.connect() as connection:
        quoted = engine.dialect.identifier_preparer.quote_identifier(table)
        return sorted(connection.scalars(text(f"SELECT {column} FROM {quoted}")))


def test_a_flush_writes_numbers_and_shows_texts(engine, base):
    with Session(engine) as session:
        session.add(order := base.Order(items=[base.Item(), base.Item()]))
        session.flush()
        assert order.id == ONE
        session.commit()

    with Session(engine) as session:
        found = session.get(base.Order, ONE)
        assert [(item.id, item.order_id) for item in found.items] == [(1, ONE), (2, ONE)]
        assert session.scalars(select(base.Order).where(base.Order.id.in_([ONE, TWO]))).all() == [found]
    assert (numbers(engine), numbers(engine, "item", "order_id")) == ([1], [1, 1])


def test_rows_of_core_and_returning_have_texts_too(engine, base):
    with Session(engine) as session:
        statement = insert(base.Order)
        if engine.dialect.insert_executemany_returning:
            ordered = statement.returning(base.Order.id, sort_by_parameter_order=True)
            assert session.scalars(ordered, ROWS).all() == [ONE, TWO, THREE]
        else:
            session.execute(statement, ROWS)
        session.commit()

        assert set(session.scalars(select(base.Order.id))) == {ONE, TWO, THREE}
        before = func.lag(base.Order.id, type_=base.Order.id.type).over(order_by=base.Order.id)  # else it is a number
        assert session.scalars(select(before).order_by(base.Order.id)).all() == [None, ONE, TWO]
        assert session.execute(insert(base.Order.__table__).values(name="d")).inserted_primary_key[0] == orders.encode(
            4
        )
    assert numbers(engine) == [1, 2, 3]


@SQLITE
def test_an_id_that_is_given_is_text(engine, base):
    with Session(engine) as session:
        session.add(base.Order(id=THREE))
        session.commit()
    assert numbers(engine) == [3]
    for wrong in ("ord_I9UOBqekNF7q8z1n", "3", 3):
        with Session(engine) as session, pytest.raises(StatementError) as refused:
            session.get(base.Order, wrong)
        assert isinstance(refused.value.orig, InvalidId)


@SQLITE
def test_it_is_the_type_of_any_column_and_null_is_null(engine, ids):
    key = Annotated[str, primary_key(ids, tag="thing", public=orders)]

    class Base(DeclarativeBase):
        pass

    class Thing(Base):
        __tablename__ = "thing"
        id: Mapped[key]
        other: Mapped[str | None] = mapped_column(PublicId(orders))

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Thing(), Thing(other=ONE)])
        session.commit()

        assert session.execute(select(Thing.id, Thing.other).order_by(Thing.id)).all() == [(ONE, None), (TWO, ONE)]


@SQLITE
def test_a_copy_of_a_table(engine, base):
    table = base.Order.__table__.to_metadata(MetaData(), name="copy")
    table.create(engine)
    with engine.begin() as connection:
        assert connection.execute(insert(table)).inserted_primary_key[0] == ONE
        assert connection.scalars(select(table.c.id)).all() == [ONE]


@SQLITE
def test_a_migration_has_a_bigint_and_nothing_of_the_key(engine, base):
    made = render_python_code(ops.UpgradeOps([ops.CreateTableOp.from_table(base.Order.__table__)]))

    assert "sa.Column('id', sa.BigInteger(), autoincrement=False, nullable=False)" in made
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, base.metadata) == []
