"""Ids as defaults of columns: every way in which SQLAlchemy inserts rows, the names of tables as tags, and under an
event loop."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import ops
from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Integer, MetaData, String, Table, insert, select
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from support.applications.shop import noting
from support.applications.sqlalchemy_models import ROWS, keys, models, table_of
from support.kit import ON_TWO, SQLITE, backend_of, on, statements
from support.servers.administrator import opened

from allocator import Allocator, AsyncAllocator
from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting, InvalidTag
from allocator.integrations.sqlalchemy import default_of, primary_key


@pytest.fixture
def base(ids: Allocator, engine: sa.Engine) -> Any:
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
    sent = []
    for given in ([{"id": 100}, {"id": 101}, {"id": 102}], [{}, {}, {}]):
        with noting(engine, "before_cursor_execute") as told, Session(engine) as session:
            session.add_all(base.Order(name="x", **one) for one in given)
            session.commit()
        sent.append([(words, len(rows)) for _, _, words, rows, *_ in told])

    assert sent[0] == sent[1]
    assert len(sent[0]) == 1


INSERTS: dict[str, Callable[[Session, Any], Any]] = {
    "executemany": lambda session, order: session.connection().execute(insert(order.__table__), ROWS),
    "values": lambda session, order: session.connection().execute(insert(order.__table__).values(ROWS)),
    "one by one": lambda session, order: [session.execute(insert(order).values(**row)) for row in ROWS],
    "mappings": lambda session, order: session.bulk_insert_mappings(order, ROWS),
    "objects": lambda session, order: session.bulk_save_objects([order(**row) for row in ROWS]),
    "bulk": lambda session, order: session.execute(insert(order), ROWS),
}


@statements
def test_each_row_has_its_own_id(engine, base):
    found = {}
    with Session(engine) as session:
        for way, act in INSERTS.items():
            act(session, base.Order)
            session.commit()
            found[way] = session.execute(select(base.Order.id, base.Order.name).order_by(base.Order.id)).all()[-3:]
        if engine.dialect.insert_executemany_returning:
            returned = insert(base.Order).returning(base.Order.id, sort_by_parameter_order=True)
            following = 1 + 3 * len(INSERTS)
            assert list(session.scalars(returned, ROWS)) == [following, following + 1, following + 2]

    assert list(found.values()) == [
        [(number, "a"), (number + 1, "b"), (number + 2, "c")] for number in range(1, 1 + 3 * len(INSERTS), 3)
    ]


@ON_TWO
def test_a_key_that_is_given_by_hand_stays_and_ids_of_a_transaction_that_is_rolled_back_are_a_gap(engine, base, ids):
    with Session(engine) as session:
        session.add(base.Order(name="lost"))
        session.flush()
        session.rollback()
        session.add_all([base.Order(name="by hand", id=77), base.Order(name="kept")])
        session.commit()
        assert sorted(session.scalars(select(base.Order.id))) == [2, 77]
    assert ids.next_id("order") == 3


@ON_TWO
def test_more_rows_than_a_segment_has(engine, ids):
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
    """Also in a common table, by PostgreSQL."""
    table = base.Order.__table__
    beside = Table("beside", MetaData(), sa.Column("number", Integer, primary_key=True))
    beside.create(engine)
    statements = [(from_select(table), rows) for rows in (None, None, [{}, {}])]  # the second time as compiled before
    if engine.dialect.name == "postgresql":
        common = from_select(table).returning(table.c.id).cte("inserted")
        statements += [(select(common), None), (insert(beside).values(number=1).add_cte(common), None)]
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        for statement, rows in statements:
            with pytest.raises(StatementError, match="all rows of this statement would get the same id") as refused:
                connection.execute(statement, rows)
            assert isinstance(refused.value.orig, InvalidSetting)
    assert keys(engine, table) == [1, 2, 3]


def test_ids_of_a_block_can_be_numbered_in_the_select(engine, ids):
    """What the refusal advises."""
    table = table_of(ids, engine)
    with engine.begin() as connection:
        connection.execute(insert(table), ROWS)
        block = ids.reserve("plain", 3)
        number = sa.func.row_number().over(order_by=table.c.id) + (block.start - 1)
        connection.execute(insert(table).from_select(["id", "name"], select(number, table.c.name)))

    assert keys(engine, table) == [1, 2, 3, *block]


# -- SQLite: one writer


@SQLITE
def test_one_file_for_ids_and_rows_is_refused_while_a_transaction_holds_it(fresh, ids):
    """Under an event loop too."""
    base = models(ids)

    def order() -> Any:
        return base.Order(name="a", items=[base.Item()])  # its own INSERT begins the transaction

    async def add_one() -> None:
        async with connected(fresh) as engine, AsyncSession(engine) as session:
            session.add(order())
            await session.commit()

    with opened(fresh) as engine:
        base.metadata.create_all(engine)
        with pytest.raises(InvalidDatabase, match="use a separate file for the allocator"):
            asyncio.run(add_one())
        with Session(engine) as session:
            session.add(order())
            with pytest.raises(InvalidDatabase, match="'item': no ids are in memory, and a claim would wait"):
                session.commit()
            session.rollback()
            ids.next_id("item")
            session.add(order())
            session.commit()
            assert (list(session.scalars(select(base.Order.id))), list(session.scalars(select(base.Item.id)))) == (
                [3],
                [2],
            )
        with engine.begin() as connection:
            connection.execute(base.Order.__table__.delete().where(base.Order.id == 0))
            with pytest.raises(StatementError, match="use a separate file for the allocator"):
                connection.execute(insert(base.Order.__table__), [{"name": "x"}] * 2000)


@SQLITE
def test_the_plain_default_of_one_file_ends_at_its_timeout(fresh):
    with Allocator(fresh, timeout=0.2) as ids, opened(fresh) as engine:
        table = table_of(ids, engine)
        with engine.connect() as connection:
            connection.exec_driver_sql("DELETE FROM plain")
            with pytest.raises(StatementError) as failed:
                connection.execute(insert(table), ROWS)
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
        table = Table(f"wrong{number}", MetaData(), sa.Column("id", BigInteger, primary_key=True, default=default))
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


# -- tags that have the name of a table: shared types, mixins, subclasses, dataclasses


@pytest.fixture
def plain_base() -> type[DeclarativeBase]:
    class Base(DeclarativeBase):
        pass

    return Base


@ON_TWO
def test_classes_that_share_a_type_have_tags_of_their_own(engine, ids, plain_base):
    key = Annotated[int, primary_key(ids)]

    class Keyed(plain_base):
        __abstract__ = True
        id: Mapped[key]

    class Named:
        id: Mapped[key]
        name: Mapped[str | None] = mapped_column(String(20))

    class One(Keyed):
        __tablename__ = "one"

    class Two(Keyed):
        __tablename__ = "two"

    class Three(Named, plain_base):
        __tablename__ = "three"

    class Four(plain_base):
        __tablename__ = "four"
        id: Mapped[key] = mapped_column(name="number", sort_order=5)

    class Five(plain_base):  # as SQLModel's `sa_column` does
        __tablename__ = "five"
        id = primary_key(ids).column

    plain_base.metadata.create_all(engine)
    with Session(engine) as session:
        for model, count in ((One, 1), (Two, 2), (Three, 3), (Four, 4), (Five, 5)):
            session.add_all(model() for _ in range(count))
        session.commit()

    following = {tag.name: ids.next_id(tag.name) for tag in ids.tags.list()}
    assert following == {"one": 2, "two": 3, "three": 4, "four": 5, "five": 6}


@ON_TWO
def test_subclasses_have_the_ids_of_the_table_that_numbers_them(engine, ids, plain_base):
    key = Annotated[int, primary_key(ids)]

    class Person(plain_base):
        __tablename__ = "person"
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "person"}
        id: Mapped[key]
        kind: Mapped[str] = mapped_column(String(20))

    class Employee(Person):
        __tablename__ = "employee"
        __mapper_args__ = {"polymorphic_identity": "employee"}
        id: Mapped[key] = mapped_column(ForeignKey("person.id"))

    class Guest(Person):
        __mapper_args__ = {"polymorphic_identity": "guest"}

    plain_base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Person(), Employee(), Guest(), Employee()])
        session.commit()

        assert sorted(session.scalars(select(Person.id))) == [1, 2, 3, 4]
        employees = set(session.scalars(select(Employee.__table__.c.id)))
        assert employees == set(session.scalars(select(Person.id).where(Person.kind == "employee")))
    assert [tag.name for tag in ids.tags.list()] == ["person"]
    assert Employee.__table__.c.id.default is None


@SQLITE
@pytest.mark.parametrize("tag", [None, "named"])
def test_a_key_draws_unless_it_is_that_of_another_row(engine, ids, tag, plain_base):
    """Of a joined parent, or of a row to which columns of the primary key alone refer."""

    class Doc(plain_base):
        __tablename__ = "doc"
        __table_args__ = (ForeignKeyConstraint(["id", "replaces"], ["doc.id", "doc.version"]),)
        id: Mapped[int] = primary_key(ids, tag=tag)
        version: Mapped[int] = mapped_column(primary_key=True)
        replaces: Mapped[int | None]

    class Line(plain_base):
        __tablename__ = "line"
        __table_args__ = (ForeignKeyConstraint(["id", "version"], ["doc.id", "doc.version"]),)
        id: Mapped[int] = primary_key(ids, tag=tag)
        version: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True)

    class Page(plain_base):
        __tablename__ = "page"
        id: Mapped[int] = primary_key(ids, tag=tag)
        kind: Mapped[str] = mapped_column(String(20), unique=True)

    class Letter(Page):
        __tablename__ = "letter"
        __table_args__ = (ForeignKeyConstraint(["id", "of"], ["page.id", "page.kind"]),)
        id: Mapped[int] = primary_key(ids, tag=tag)
        of: Mapped[str] = mapped_column(String(20))

    drawing = [default_of(model.__table__.c.id) is not None for model in (Doc, Line, Page, Letter)]
    assert drawing == [True, False, True, False]
    Doc.__table__.create(engine)
    with Session(engine) as session:
        docs = [Doc(version=1), Doc(version=1), Doc(id=1, version=2, replaces=1)]
        for doc in docs:
            session.add(doc)
            session.flush()
        assert [doc.id for doc in docs] == [1, 2, 1]


@SQLITE
def test_dataclasses(engine, ids):
    key = Annotated[int, primary_key(ids)]

    class Base(MappedAsDataclass, DeclarativeBase):
        pass

    class One(Base):
        __tablename__ = "one"
        id: Mapped[int] = primary_key(ids, init=False)
        name: Mapped[str] = mapped_column(String(20), default="one")

    class Two(Base):
        __tablename__ = "two"
        id: Mapped[key] = mapped_column(init=False)

    class Three(Base):
        __tablename__ = "three"
        id: Mapped[int] = mapped_column(
            BigInteger, primary_key=True, insert_default=ids.sequence("another").next_id, init=False
        )

    class Four(Base):
        __tablename__ = "four"
        id: Mapped[int] = primary_key(ids, default_factory=ids.sequence("four").next_id, kw_only=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        objects = [One(), One("b"), Two(), Three(), Four(), Four(id=7)]
        assert objects[-2].id == 1
        session.add_all(objects)
        session.commit()

        assert [made.id for made in objects] == [1, 2, 1, 1, 1, 7]
    assert [tag.name for tag in ids.tags.list()] == ["another", "four", "one", "two"]


@SQLITE
def test_the_tag_is_the_name_of_the_table_with_its_schema_unless_it_is_said(ids, plain_base):
    def tag_of(name: str, schema: str | None = None, **said: str) -> str:
        words = {"__tablename__": name, "__table_args__": {"schema": schema}, "id": primary_key(ids, **said)}
        return default_of(type(f"{schema} {name}", (plain_base,), words).__table__.c.id).sequence.tag

    assert tag_of("order") == "order"
    assert tag_of("order", "sales") == "sales.order"
    assert tag_of("line items", tag="line-items") == "line-items"
    with pytest.raises(InvalidTag, match=r"the name of table 'order items' cannot be a tag: .* primary_key\(ids, tag="):
        tag_of("order items")
    with pytest.raises(InvalidTag):
        primary_key(ids, tag="order items")


# -- under an event loop, which never waits for a claim


class Stalled:
    """Holds claims up until the event loop lets them go: one that is blocked never does."""

    def __init__(self, ids: Allocator, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passed: list[bool] = []
        self.held: list[threading.Event] = []
        claim = backend_of(ids).claim_segment

        def hold(*args: Any, **kwargs: Any) -> range:
            self.passed.append(self.wait())
            return claim(*args, **kwargs)

        monkeypatch.setattr(backend_of(ids), "claim_segment", hold)

    def wait(self) -> bool:
        go = threading.Event()
        self.held.append(go)
        try:
            self.loop.call_soon_threadsafe(self.loop.call_later, 0.01, go.set)
        except RuntimeError:  # it is over, and this claim was in advance
            return True
        return go.wait(3)

    def run(self, main: Any) -> Any:
        async def noted() -> Any:
            self.loop = asyncio.get_running_loop()
            return await main

        try:
            return asyncio.run(noted())
        finally:
            for go in self.held:
                go.set()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(url.replace("sqlite:", "sqlite+aiosqlite:"))
    try:
        yield engine
    finally:
        await engine.dispose()


@pytest.fixture(params=["Allocator", "AsyncAllocator"])
def either(request, ids):
    """An allocator of either face; the database behind it is that of `ids`."""
    return ids if request.param == "Allocator" else AsyncAllocator(ids)


@ON_TWO
def test_an_async_session_draws_without_blocking_the_loop(engine, rows, ids, either, monkeypatch):
    """Nor do other calls in it: a hook of the application draws with the blocking face."""
    stalled = Stalled(ids, monkeypatch)
    base = models(either)
    base.metadata.create_all(engine)
    ids.tags.create("order", step=10, max_step=10)

    def hook(_: Session) -> list[object]:
        return [ids.next_id("a"), ids.next_ids("b", 3), ids.reserve("c", 2)]

    async def main() -> list[object]:
        async with connected(rows) as engine, AsyncSession(engine) as session:
            session.add_all(base.Order(name=name, items=[base.Item(), base.Item()]) for name in "abc")
            await session.flush()
            await session.execute(insert(base.Order.__table__), [{"name": str(number)} for number in range(50)])
            await session.execute(insert(base.Order).values(ROWS))
            await session.commit()
            found = [sorted(await session.scalars(select(model.id))) for model in (base.Order, base.Item)]
            return found + await session.run_sync(hook)

    assert stalled.run(main()) == [list(range(1, 57)), list(range(1, 7)), 1, [1, 2, 3], range(1, 3)]
    assert len(stalled.passed) >= 9
    assert all(stalled.passed)


@SQLITE
def test_a_database_that_does_not_answer_is_an_error_in_time_and_a_wait_can_be_cancelled(engine, rows, fresh):
    with Allocator(fresh, timeout=0.2) as ids:
        table = table_of(ids, engine)

        async def main() -> None:
            async with connected(rows) as engine:
                async with engine.connect() as connection:
                    with pytest.raises(StatementError) as failed:
                        await connection.execute(insert(table), ROWS)
                    assert isinstance(failed.value.orig, DatabaseUnavailable)
                async with engine.connect() as connection:
                    asked = asyncio.ensure_future(connection.execute(insert(table), ROWS))
                    await asyncio.sleep(0.05)
                    asked.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await asked

        with opened(fresh) as holder, holder.connect() as connection:
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            asyncio.run(main())
            connection.rollback()
    with Allocator(fresh) as ids:
        assert ids.next_id("plain") > 0
    assert keys(engine, table) == []


@SQLITE
def test_the_keys_of_an_async_allocator_work_in_a_blocking_session_too(engine, ids):
    base = models(AsyncAllocator(ids))
    base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(base.Order(name="a"))
        session.commit()
        session.execute(insert(base.Order), ROWS)

        assert session.scalars(select(base.Order.id)).all() == [1, 2, 3, 4]
    assert base.Order.__table__.c.id.default.arg(None) == 5


@SQLITE
def test_a_copy_of_a_table_goes_on_with_its_tag(engine, ids, base):
    table = base.Order.__table__.to_metadata(MetaData(), name="_alembic_tmp_order")
    assert default_of(table.c.id) is default_of(base.Order.__table__.c.id)
    assert default_of(table.c.id).sequence is ids.sequence("order")
    table.create(engine)
    with engine.begin() as connection:
        assert connection.execute(insert(table)).inserted_primary_key[0] == 1
        assert connection.scalars(select(table.c.id)).all() == [1]


@SQLITE
def test_a_migration_has_a_bigint(engine, base):
    made = render_python_code(ops.UpgradeOps([ops.CreateTableOp.from_table(base.Order.__table__)]))

    assert "sa.Column('id', sa.BigInteger(), autoincrement=False, nullable=False)" in made
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, base.metadata) == []
