"""The table of orders, and the insert."""

import os

from settings import IDS, ROWS
from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, create_engine

from allocator import Allocator

ids = Allocator(IDS)  # may be at module level: a forked worker claims its own ids
engine = create_engine(ROWS)
metadata = MetaData()
orders = Table(
    "orders",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("customer", String(100), nullable=False),
    Column("process", Integer, nullable=False),
)


def insert(customers: list[str]) -> list[int]:
    numbers = ids.next_ids("order", len(customers))
    rows = [
        {"id": number, "customer": customer, "process": os.getpid()}
        for number, customer in zip(numbers, customers, strict=True)
    ]
    with engine.begin() as connection:
        connection.execute(orders.insert(), rows)
    return numbers
