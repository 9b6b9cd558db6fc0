"""Ids as defaults of columns: every way in which SQLAlchemy inserts rows, the names of tables as tags, and under an
event loop."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata, render_python_code
from alembic.migration import MigrationContext
from alembic.operations import ops
from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, Integer, MetaData, String, Table, insert, select
from sqlalchemy.exc import StatementError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column, relationship
from support.applications.shop import noting
from support.kit import ON_TWO, SQLITE, backend_of, on
from support.servers.administrator import opened

from allocator import Allocator, AsyncAllocator
from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting, InvalidTag
from allocator.integrations.sqlalchemy import default_of, primary_key

ROWS = [{"name": name} for name in "abc"]


def models(ids: Any) -> Any:
    """A class with a child; the ids of each come from the tag named like its table."""

    class Base(DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "item"
        id: Mapped[int] = primary_key(ids)
        order_id: Mapped[int | None] = mapped_column(ForeignKey("order.id"))

    class Order(Base):
        __tablename__ = "order"
        id: Mapped[int] = primary_key(ids)
        name: Mapped[str | None] = mapped_column(String(20))
        items: Mapped[list[Item]] = relationship()

    Base.Order, Base.Item = Order, Item  # type: ignore[attr-defined]
    return Base


def plain_table(engine: sa.Engine, default: Any) -> Table:
    """A table with the plain default."""
    key = sa.Column("id", BigInteger, primary_key=True, autoincrement=False, default=default)
    table = Table("plain", MetaData(), key, sa.Column("name", String(20)))
    table.create(engine)
    return table


def keys(engine: sa.Engine, table: Table) -> list[int]:
    with engine.connect() as connection:
        return list(connection.scalars(select(table.c.id).order_by(table.c.id)))


@pytest.fixture
def base(ids: Allocator, engine: sa.Engine) -> Any:
    made = models(ids)
    made.metadata.create_all(engine)
    return made


# -- every way to insert


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


def test_each_row_has_its_own_id(engine, base):
    """A parent and its children at a flush too. A key that is given by hand stays; a rollback leaves a gap."""
    found = {}
    with Session(engine) as session:
        for way, act in INSERTS.items():
            act(session, base.Order)
            session.commit()
            found[way] = session.execute(select(base.Order.id, base.Order.name).order_by(base.Order.id)).all()[-3:]
        following = 1 + 3 * len(INSERTS)
        if engine.dialect.insert_executemany_returning:
            returned = insert(base.Order).returning(base.Order.id, sort_by_parameter_order=True)
            assert list(session.scalars(returned, ROWS)) == [following, following + 1, following + 2]
            following += 3
        session.add(base.Order(name="lost"))
        session.flush()
        session.rollback()
        session.add_all([base.Order(id=777), base.Order(items=[base.Item(), base.Item()])])
        session.commit()

        assert set(session.scalars(select(base.Order.id).where(base.Order.id >= following))) == {following + 1, 777}
        assert session.execute(select(base.Item.id, base.Item.order_id)).all() == [(n, following + 1) for n in (1, 2)]
    assert list(found.values()) == [
        [(number, "a"), (number + 1, "b"), (number + 2, "c")] for number in range(1, 1 + 3 * len(INSERTS), 3)
    ]


# -- an INSERT from a SELECT


def from_select(table: Table) -> Any:
    return insert(table).from_select(["name"], select(table.c.name))


@ON_TWO
def test_an_insert_from_a_select_is_refused(engine, base, ids):
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
        block = ids.reserve("order", 3)  # what the refusal advises
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


# -- the plain default, what others call, and what is no default


@ON_TWO
def test_tools_call_a_default_with_none_or_an_object(engine, ids, base):
    """As model factories and generators of forms do, which have no statement yet."""
    plain = plain_table(engine, ids.sequence("plain").next_id).c.id.default.arg
    for column, given in ((base.Order.__table__.c.id, None), (base.Item.__table__.c.id, base.Item())):
        assert [column.default.arg(given), column.default.arg(given)] == [1, 2]
    assert [plain(None), plain(base.Order())] == [1, 2]


@SQLITE
def test_the_forms_that_are_no_default_name_the_one_that_is(engine, ids):
    """`ids.next_id` takes a tag, and SQLAlchemy passes a context. A key outside of a mapped class needs a tag."""
    write = "write primary_key(ids, tag='order'), or default=ids.sequence('order').next_id"
    for number, (default, error, words) in enumerate(
        (
            (ids.next_id, TypeError, "the default of a column is ids.sequence('order').next_id"),
            (ids.sequence("order"), TypeError, write),
            (AsyncAllocator(ids).sequence("order"), TypeError, write.partition("=ids")[0]),
            (primary_key(ids).column.default.arg, InvalidSetting, "needs a tag: primary_key"),
        )
    ):
        table = Table(f"wrong{number}", MetaData(), sa.Column("id", BigInteger, primary_key=True, default=default))
        table.create(engine)
        with engine.begin() as connection, pytest.raises(StatementError) as refused:
            connection.execute(insert(table), {})
        assert words in str(refused.value.orig)
        assert isinstance(refused.value.orig, error)
    table = Table("right", MetaData(), primary_key(AsyncAllocator(ids), name="id", tag="order").column)
    table.create(engine)
    with engine.begin() as connection:
        assert connection.execute(insert(table)).inserted_primary_key == (1,)


# -- tags that have the name of a table: shared types, mixins, subclasses, dataclasses


@pytest.fixture
def plain_base() -> type[DeclarativeBase]:
    class Base(DeclarativeBase):
        pass

    return Base


@ON_TWO
def test_classes_that_share_a_type_have_tags_of_their_own(engine, ids, plain_base):
    key = Annotated[int, primary_key(ids)]

    class Named:
        id: Mapped[key]
        name: Mapped[str | None] = mapped_column(String(20))

    class One(plain_base):
        __tablename__ = "one"
        id: Mapped[key] = mapped_column(name="number", sort_order=5)

    class Two(Named, plain_base):
        __tablename__ = "two"

    class Three(plain_base):  # as SQLModel's `sa_column` does
        __tablename__ = "three"
        id = primary_key(ids).column

    plain_base.metadata.create_all(engine)
    with Session(engine) as session:
        for model, count in ((One, 1), (Two, 2), (Three, 3)):
            session.add_all(model() for _ in range(count))
        session.commit()

    following = {tag.name: ids.next_id(tag.name) for tag in ids.tags.list()}
    assert following == {"one": 2, "two": 3, "three": 4}


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
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "page"}

    class Note(Page):
        __mapper_args__ = {"polymorphic_identity": "note"}

    class Letter(Page):
        __mapper_args__ = {"polymorphic_identity": "letter"}
        __tablename__ = "letter"
        __table_args__ = (ForeignKeyConstraint(["id", "of"], ["page.id", "page.kind"]),)
        id: Mapped[int] = primary_key(ids, tag=tag)
        of: Mapped[str] = mapped_column(String(20))

    drawing = [default_of(model.__table__.c.id) is not None for model in (Doc, Line, Page, Letter)]
    assert drawing == [True, False, True, False]
    plain_base.metadata.create_all(engine)
    with Session(engine) as session:
        docs = [Doc(version=1), Doc(version=1), Doc(id=1, version=2, replaces=1)]
        for doc in docs:
            session.add(doc)
            session.flush()
        assert [doc.id for doc in docs] == [1, 2, 1]
        session.add_all([Page(), Letter(of="letter"), Note()])
        session.commit()
        ids_of = {kind: id_ for id_, kind in session.execute(select(Page.id, Page.kind))}
        assert sorted(ids_of.values()) == ([1, 2, 3] if tag is None else [3, 4, 5])
        assert session.scalars(select(Letter.__table__.c.id)).all() == [ids_of["letter"]]


@SQLITE
def test_dataclasses(engine, ids):
    class Base(MappedAsDataclass, DeclarativeBase):
        pass

    class One(Base):
        __tablename__ = "one"
        id: Mapped[int] = primary_key(ids, init=False)
        name: Mapped[str] = mapped_column(String(20), default="one")

    class Two(Base):
        __tablename__ = "two"
        id: Mapped[int] = primary_key(ids, default_factory=ids.sequence("two").next_id, kw_only=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        objects = [One(), One("b"), Two(), Two(id=7)]
        assert objects[2].id == 1
        session.add_all(objects)
        session.commit()

        assert [made.id for made in objects] == [1, 2, 1, 7]


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


def taking_turns(ids: Allocator, monkeypatch: pytest.MonkeyPatch) -> tuple[list[bool], Callable[[Any], Any]]:
    """Each claim waits for a turn of the event loop: in one that is blocked it never comes. And what runs the loop."""
    turns: list[bool] = []
    loops: list[asyncio.AbstractEventLoop] = []
    claim = backend_of(ids).claim_segment

    def hold(*args: Any, **kwargs: Any) -> range:
        with suppress(RuntimeError, CancelledError):  # the loop is over, and this claim was in advance
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0.01), loops[0]).result(3)
            turns.append(True)
        return claim(*args, **kwargs)

    async def noted(main: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        return await main

    monkeypatch.setattr(backend_of(ids), "claim_segment", hold)
    return turns, lambda main: asyncio.run(noted(main))


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
    turns, run = taking_turns(ids, monkeypatch)
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

    assert run(main()) == [list(range(1, 57)), list(range(1, 7)), 1, [1, 2, 3], range(1, 3)]
    assert len(turns) >= 9


@SQLITE
def test_a_database_that_does_not_answer_is_an_error_in_time_and_a_wait_can_be_cancelled(engine, rows, fresh):
    with Allocator(fresh, timeout=0.2) as ids:
        table = plain_table(engine, ids.sequence("plain").next_id)

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
