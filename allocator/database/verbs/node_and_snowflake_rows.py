"""The rows of `allocator_node` and `allocator_worker`: numbers registered, and leases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, insert, literal, literal_column, select, text, update

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import failover, node, worker
from allocator.database.verbs.worker_number_rows import clock
from allocator.errors import MaxValueWentBack
from allocator.rules.failover import LEASES_SKIPPED_MS, further
from allocator.schemes.meteor import Node
from allocator.schemes.snowflake import AHEAD_MS, Lease, LeaseClaim, SnowflakeWorker


def register(connection: Connection, dialect: Dialect, host: str, process: int, version: str, at: datetime) -> int:
    """Register a node. Its number is unique if it is above all that were known before; see `check_new`."""
    named = lasting(connection, dialect, host[:255])
    values = {"host": named, "process": process, "version": version[:32], "started_at": at}
    key = connection.execute(insert(node).values(values)).inserted_primary_key
    return int(key[0]) if key else 0


def check_new(number: int, known: int) -> int:
    if number <= known:
        raise MaxValueWentBack(
            f"node {number} was registered, but node {known} was known before: the counter of allocator_node was "
            "set back; raise it above the greatest number"
        )
    return number


def fetch_newest(connection: Connection, dialect: Dialect, last: int) -> list[Node]:
    return [as_node(row) for row in connection.execute(select(node).order_by(node.c.id.desc()).limit(last))]


def fetch_workers(connection: Connection, dialect: Dialect) -> list[SnowflakeWorker]:
    return [as_worker(row) for row in connection.execute(select(worker).order_by(worker.c.number))]


def add_worker(connection: Connection, dialect: Dialect, fresh: SnowflakeWorker) -> bool:
    """Write the first lease of a worker number; False if another process just did."""
    values = columns_of(fresh) | {"host": lasting(connection, dialect, fresh.host[:255])}
    added = dialect.insert_missing(worker).values(values).execution_options(preserve_rowcount=True)
    return connection.execute(added).rowcount == 1


def take_worker(connection: Connection, dialect: Dialect, old: SnowflakeWorker, fresh: SnowflakeWorker) -> bool:
    """Replace a lease that has ended; False if the row has changed since `old` was read."""
    statement = update(worker).where(
        worker.c.number == old.number,
        worker.c.holder == old.holder,
        worker.c.until_ms == old.until,
        text(dialect.lasting(connection)),
    )
    return connection.execute(statement.values(columns_of(fresh))).rowcount == 1


def renew_worker(connection: Connection, dialect: Dialect, held: Lease, claim: LeaseClaim) -> bool:
    """Extend a lease; False if another process holds the worker now, or the claim is too far ahead of our clock."""
    later = dialect.greatest(worker.c.until_ms, claim.until)
    ours = (
        worker.c.number == held.number,
        worker.c.holder == held.holder,
        clock(dialect) + ahead(claim) >= claim.now - AHEAD_MS,
        text(dialect.lasting(connection)),
    )
    return connection.execute(update(worker).where(*ours).values(until_ms=later)).rowcount == 1


def ahead(claim: LeaseClaim) -> ColumnElement[int]:
    """What `most_ahead` says of the row as it is now."""
    added = failover.c.leases_ahead_ms + LEASES_SKIPPED_MS + further(claim.span)
    kept = select(case((failover.c.leases_from_ms > 0, added), else_=0)).where(failover.c.id == 1)
    return func.coalesce(kept.scalar_subquery(), 0)


def lasting(connection: Connection, dialect: Dialect, value: str) -> ColumnElement[str]:
    """A value for an INSERT, with the condition `Dialect.lasting` evaluated."""
    return case((literal_column(dialect.lasting(connection)), literal(value)), else_=literal(value))


def as_node(row: Any) -> Node:
    return Node(row.id, row.host, row.process, row.version, row.started_at.replace(tzinfo=UTC))


def as_worker(row: Any) -> SnowflakeWorker:
    return SnowflakeWorker(row.number, row.layout, row.epoch_ms, row.holder, row.until_ms, row.host, row.process)


def columns_of(fresh: SnowflakeWorker) -> dict[str, object]:
    return {
        "number": fresh.number,
        "layout": fresh.layout,
        "epoch_ms": fresh.epoch,
        "holder": fresh.holder,
        "until_ms": fresh.until,
        "host": fresh.host[:255],
        "process": fresh.process,
    }
