"""Keys whose tag is the name of their table: shared types, mixins, subclasses, dataclasses."""

from typing import Annotated

import pytest
from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, MetaData, String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column
from support.kit import ON_TWO, SQLITE

from allocator.errors import InvalidTag
from allocator.integrations.sqlalchemy import default_of, primary_key


@pytest.fixture
def base() -> type[DeclarativeBase]:
    class Base(DeclarativeBase):
        pass

    return Base


@ON_TWO
def test_classes_that_share_a_type_have_tags_of_their_own(engine, ids, base):
    key = Annotated[int, primary_key(ids)]

    class Keyed(base):
        __abstract__ = True
        id: Mapped[key]

    class Named:
        id: Mapped[key]
        name: Mapped[str | None] = mapped_column(String(20))

    class One(Keyed):
        __tablename__ = "one"

    class Two(Keyed):
        __tablename__ = "two"

    class Three(Named, base):
        __tablename__ = "three"

    class Four(base):
        __tablename__ = "four"
        id: Mapped[key] = mapped_column(name="number", sort_order=5)

    class Five(base):  # as SQLModel's `sa_column` does
        __tablename__ = "five"
        id = primary_key(ids).column

    base.metadata.create_all(engine)
    with Session(engine) as session:
        for model, count in ((One, 1), (Two, 2), (Three, 3), (Four, 4), (Five, 5)):
            session.add_all(model() for _ in range(count))
        session.commit()

    following = {tag.name: ids.next_id(tag.name) for tag in ids.tags.list()}
    assert following == {"one": 2, "two": 3, "three": 4, "four": 5, "five": 6}


@ON_TWO
def test_subclasses_have_the_ids_of_the_table_that_numbers_them(engine, ids, base):
    key = Annotated[int, primary_key(ids)]

    class Person(base):
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

    base.metadata.create_all(engine)
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
def test_a_key_draws_unless_it_is_that_of_another_row(engine, ids, tag, base):
    """Of a joined parent, or of a row to which columns of the primary key alone refer."""

    class Doc(base):
        __tablename__ = "doc"
        __table_args__ = (ForeignKeyConstraint(["id", "replaces"], ["doc.id", "doc.version"]),)
        id: Mapped[int] = primary_key(ids, tag=tag)
        version: Mapped[int] = mapped_column(primary_key=True)
        replaces: Mapped[int | None]

    class Line(base):
        __tablename__ = "line"
        __table_args__ = (ForeignKeyConstraint(["id", "version"], ["doc.id", "doc.version"]),)
        id: Mapped[int] = primary_key(ids, tag=tag)
        version: Mapped[int] = mapped_column(primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True)

    class Page(base):
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
def test_a_schema_is_part_of_the_tag(ids, base):
    class One(base):
        __tablename__ = "order"
        id: Mapped[int] = primary_key(ids)

    class Two(base):
        __tablename__ = "order"
        __table_args__ = {"schema": "sales"}
        id: Mapped[int] = primary_key(ids)

    assert [default_of(model.__table__.c.id).sequence.tag for model in (One, Two)] == ["order", "sales.order"]


@SQLITE
def test_a_copy_of_a_table_goes_on_with_its_tag(ids, base):
    class Order(base):
        __tablename__ = "order"
        id: Mapped[int] = primary_key(ids)

    copied = Order.__table__.to_metadata(MetaData(), name="_alembic_tmp_order")

    assert default_of(copied.c.id) is default_of(Order.__table__.c.id)
    assert default_of(copied.c.id).sequence is ids.sequence("order")


@SQLITE
def test_a_name_that_is_no_tag_is_refused_when_the_class_is_mapped(ids, base):
    with pytest.raises(InvalidTag, match=r"the name of table 'order items' cannot be a tag: .* primary_key\(ids, tag="):

        class Wrong(base):
            __tablename__ = "order items"
            id: Mapped[int] = primary_key(ids)

    class Right(base):
        __tablename__ = "line items"
        id: Mapped[int] = primary_key(ids, tag="line-items")

    assert default_of(Right.__table__.c.id).sequence is ids.sequence("line-items")


@SQLITE
def test_a_tag_that_is_none_is_refused_at_once(ids):
    with pytest.raises(InvalidTag):
        primary_key(ids, tag="order items")
