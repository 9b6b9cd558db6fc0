"""Ids as defaults of columns: every way in which SQLAlchemy inserts rows."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Integer,
    MetaData,
    Table,
    create_engine,
    event,
    func,
    insert,
    select,
    text,
)
from sqlalchemy.exc import StatementError
from sqlalchemy.orm import Session
from support.applications.sqlalchemy_models import ROWS, keys, models, table_of
from support.kit import ON_POSTGRES, ON_TWO, SQLITE, on

from allocator import Allocator, AsyncAllocator
from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting
from allocator.integrations.sqlalchemy import primary_key


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


@on("sqlite", "postgres", "mysql")
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


@ON_TWO
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


@on("sqlite", "postgres", "mariadb")
def test_returning_gives_the_ids_of_many_rows(engine, base):
    with Session(engine) as session:
        found = session.scalars(insert(base.Order).returning(base.Order.id, sort_by_parameter_order=True), ROWS)

        assert list(found) == [1, 2, 3]


@ON_TWO
def test_ids_of_a_transaction_that_is_rolled_back_are_a_gap(engine, base, ids):
    with Session(engine) as session:
        session.add(base.Order(name="lost"))
        session.flush()
        session.rollback()
        session.add(base.Order(name="kept"))
        session.commit()

        assert session.scalars(select(base.Order.id)).all() == [2]
    assert ids.next_id("order") == 3


@ON_TWO
def test_more_rows_than_a_segment_has(engine, base, ids):
    ids.tags.create("plain", step=10, max_step=10)
    table = table_of(ids, engine)
    with engine.begin() as connection:
        connection.execute(insert(table), [{"name": str(number)} for number in range(1000)])

    assert keys(engine, table) == list(range(1, 1001))


# -- an INSERT from a SELECT


def from_select(table: Table) -> Any:
    return insert(table).from_select(["name"], select(table.c.name))


@ON_TWO
def test_an_insert_from_a_select_is_refused(engine, base):
    table = base.Order.__table__
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        for rows in (None, None, [{}, {}]):  # the second time as compiled before
            with pytest.raises(StatementError, match="all rows of this statement would get the same id") as refused:
                connection.execute(from_select(table), rows)
            assert isinstance(refused.value.orig, InvalidSetting)

    assert keys(engine, table) == [1, 2, 3]


@ON_POSTGRES
def test_an_insert_from_a_select_in_a_common_table_is_refused(engine, base):
    table = base.Order.__table__
    inserted = from_select(table).returning(table.c.id).cte("inserted")
    beside = Table("beside", MetaData(), Column("number", Integer, primary_key=True))
    beside.create(engine)
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        with pytest.raises(StatementError, match="all rows of this statement"):
            connection.execute(select(inserted))
        with pytest.raises(StatementError, match="all rows of this statement"):
            connection.execute(insert(beside).values(number=1).add_cte(inserted))


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
        connection.execute(base.Order.__table__.delete().where(base.Order.id == 0))
        with pytest.raises(StatementError, match="use a separate file for the allocator"):
            connection.execute(insert(base.Order.__table__), [{"name": "x"}] * 2000)
    engine.dispose()


@SQLITE
def test_the_plain_default_of_one_file_ends_at_its_timeout(fresh):
    with Allocator(fresh, timeout=0.2) as ids:
        engine = create_engine(fresh)
        table = table_of(ids, engine)
        with engine.connect() as connection:
            connection.execute(text("DELETE FROM plain"))
            with pytest.raises(StatementError) as failed:
                connection.execute(insert(table), ROWS)
        engine.dispose()

    assert isinstance(failed.value.orig, DatabaseUnavailable)


# -- the plain default, what others call, and what is no default


@ON_TWO
def test_tools_call_a_default_with_none_or_an_object(engine, ids, base):
    """As model factories and generators of forms do, which have no statement yet."""
    plain = table_of(ids, engine).c.id.default.arg
    for column, given in ((base.Order.__table__.c.id, None), (base.Item.__table__.c.id, base.Item())):
        assert [column.default.arg(given), column.default.arg(given)] == [1, 2]
    assert [plain(None), plain(base.Order())] == [1, 2]


@SQLITE
def test_the_forms_that_are_no_default_name_the_one_that_is(engine, ids):
    """`ids.next_id` takes a tag, and SQLAlchemy passes a context. A sequence was the default once."""
    wrong = {
        "the default of a column is ids.sequence('order').next_id": ids.next_id,
        "write primary_key(ids, tag='order'), or default=ids.sequence('order').next_id": ids.sequence("order"),
        "write primary_key(ids, tag='order'), or default": AsyncAllocator(ids).sequence("order"),
    }
    for number, (words, default) in enumerate(wrong.items()):
        table = Table(f"wrong{number}", MetaData(), Column("id", BigInteger, primary_key=True, default=default))
        table.create(engine)
        with engine.begin() as connection, pytest.raises(StatementError) as refused:
            connection.execute(insert(table), {})
        assert words in str(refused.value.orig)
        assert isinstance(refused.value.orig, TypeError)
        with pytest.raises(TypeError):
            table.c.id.default.arg(None)


@SQLITE
def test_a_key_outside_of_a_mapped_class_needs_a_tag(engine, ids):
    for number, key in enumerate((primary_key(ids, name="id"), primary_key(ids, name="id", tag="order"))):
        table = Table(f"table{number}", MetaData(), key.column)
        table.create(engine)
        with engine.begin() as connection:
            if number:
                assert connection.execute(insert(table)).inserted_primary_key == (1,)
            else:
                with pytest.raises(StatementError, match="needs a tag: primary_key"):
                    connection.execute(insert(table))
