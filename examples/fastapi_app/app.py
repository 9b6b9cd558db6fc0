"""A shop with orders and items whose keys are ids of the allocator, on async FastAPI and SQLAlchemy."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy import ForeignKey
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from allocator import AsyncAllocator
from allocator.integrations.sqlalchemy import primary_key

# SQLite allows one writer per file, so the ids have a separate file. On a server, both URLs name the same database.
ids = AsyncAllocator(os.environ.get("SHOP_IDS_URL", "sqlite:///ids.db"))
engine = create_async_engine(os.environ.get("SHOP_DATABASE_URL", "sqlite+aiosqlite:///shop.db?timeout=60"))

Key = Annotated[int, primary_key(ids)]


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "order"
    id: Mapped[Key]
    customer: Mapped[str]
    items: Mapped[list["Item"]] = relationship(lazy="selectin")


class Item(Base):
    __tablename__ = "item"
    id: Mapped[Key]
    order_id: Mapped[int] = mapped_column(ForeignKey("order.id"))
    product: Mapped[str]


class NewOrder(BaseModel):
    customer: str
    products: list[str]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with ids:
        yield
    await engine.dispose()


async def in_session() -> AsyncIterator[AsyncSession]:
    async with AsyncSession(engine, expire_on_commit=False) as session:
        yield session


app = FastAPI(lifespan=lifespan)
Sessions = Annotated[AsyncSession, Depends(in_session)]


def shown(order: Order) -> dict[str, object]:
    """Return ids as text, since browsers round numbers above 2**53."""
    items = [{"id": str(item.id), "product": item.product} for item in order.items]
    return {"id": str(order.id), "customer": order.customer, "items": items}


@app.post("/orders", status_code=201)
async def make(new: NewOrder, session: Sessions) -> dict[str, object]:
    order = Order(customer=new.customer, items=[Item(product=product) for product in new.products])
    session.add(order)
    await session.commit()  # the order and its items are one transaction
    return shown(order)


@app.get("/orders/{number}")
async def read(number: int, session: Sessions) -> dict[str, object]:
    if order := await session.get(Order, number):
        return shown(order)
    raise HTTPException(404)


@app.post("/jobs", status_code=201)
async def job() -> dict[str, str]:
    """Draw ids that belong to no table."""
    return {"number": str(await ids.ticket("job"))}
