"""The verbs: every act on the database is one plain function on a Connection in autocommit.

What differs between the databases is in `postgresql.py`, `mysql.py` and `sqlite.py`, and only that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, ClassVar

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    Update,
    bindparam,
    column,
    func,
    insert,
    literal,
    select,
    table,
    update,
)

from allocator.database.tables import node, segment, worker
from allocator.errors import AllocatorError, MaxValueWentBack
from allocator.schemes.registry import Node, Worker
from allocator.schemes.tag import Tag, damaged

READ = select(segment.c.tag, segment.c.max_value, segment.c.step, segment.c.max_step, segment.c.id_limit)
READ_ONE = READ.where(segment.c.tag == bindparam("name"))
READ_ALL = READ.order_by(segment.c.tag)


def claiming(max_value: ColumnElement[int]) -> Update:
    """Raise `max_value` by :size, unless that passes the limit or the row lies below what was :seen.

    The guard on :seen refuses where `GREATEST(max_value, :seen)` would go on: a row that fell back makes
    another process claim again what a third one still holds, so no further id of the tag is safe.
    """
    size, seen = bindparam("size", type_=BigInteger), bindparam("seen", type_=BigInteger)
    return (
        update(segment)
        .where(
            segment.c.tag == bindparam("name"),
            segment.c.max_value <= segment.c.id_limit - size,
            segment.c.max_value >= seen,
        )
        .values(max_value=max_value)
    )


MAX_CONNECT_SECONDS = 10.0
"""To a server that does not even answer, however patient the statements may be."""

RAISED = segment.c.max_value + bindparam("size", type_=BigInteger)


class Dialect:
    """What all databases have in common; one subclass for each, with the difference."""

    name: ClassVar[str]
    default_driver: ClassVar[str]
    """The driver that a URL without one means."""
    needs_name: ClassVar[bool] = False
    """A URL must name the database."""
    extra: ClassVar[str]
    """The extra of this package that installs it; empty where nothing is needed."""
    errors: ClassVar[Mapping[str, type[AllocatorError]]] = {}
    """The driver's error codes that mean more than "try again later"."""
    contended: ClassVar[frozenset[str]] = frozenset()
    """The codes after which the same statement may simply be run again: deadlocks and the like."""
    insert_missing_worker: ClassVar[Insert]
    insert_missing: ClassVar[Insert]
    """Insert a row of `allocator_segment`, or nothing when its tag is there."""
    pool_size: ClassVar[int] = 8
    embedded: ClassVar[bool] = False
    """The database is this library's own file, so it makes its schema by itself."""

    # -- connections

    def connect_args(self, timeout: float) -> dict[str, Any]:
        """Arguments for the driver, of which a URL's own query wins."""
        return {}

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        """Prepare a new connection of the driver; `info` stays with it. A round trip here is one per connection."""

    def before(self, connection: Connection) -> None:
        """Called before a verb."""

    def after(self, connection: Connection) -> None:
        """Called after a verb, which counts for nothing if this raises."""

    def code(self, error: BaseException) -> str:
        """The driver's code for an error; empty when it has none."""
        return ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        """Let one change of the schema run at a time, in one transaction where the database has such."""
        raise NotImplementedError
        yield

    def triggers(self, connection: Connection, table_name: str) -> list[str]:
        """The names of the triggers on a table."""
        raise NotImplementedError

    # -- segments

    def claim_segment(self, connection: Connection, name: str, size: int, seen: int) -> int | None:
        """Claim `size` ids above what is claimed: one statement, one round trip.

        Returns the last of them, or None where no row matched: the tag is missing, too close to its limit, or
        below `seen`.
        """
        raise NotImplementedError

    def read_segment(self, connection: Connection, name: str) -> Tag | None:
        rows = connection.execute(READ_ONE, {"name": name}).all()
        return as_tag(rows[0]) if rows else None

    def list_segments(self, connection: Connection) -> list[Tag]:
        return [as_tag(row) for row in connection.execute(READ_ALL)]

    def create_segment(self, connection: Connection, tag: Tag) -> bool:
        """Make the row, unless there is one already: False then."""
        made = self.insert_missing.execution_options(preserve_rowcount=True)
        return connection.execute(made, row_of(tag)).rowcount == 1

    def set_segment(self, connection: Connection, name: str, changes: Mapping[str, int]) -> bool:
        """Write the given columns and no others, if the row then adds up; False if it would not, or is missing.

        `max_value` is raised by the statement, never written: a claim may have passed it since it was read.
        """
        after: dict[str, ColumnElement[Any]] = {
            part.name: literal(changes[part.name]) if part.name in changes else part for part in segment.c
        }
        if "max_value" in changes:
            after["max_value"] = self.greatest(segment.c.max_value, changes["max_value"])
        statement = (
            update(segment)
            .where(
                segment.c.tag == name,
                after["max_value"] <= after["id_limit"],
                after["step"] <= after["max_step"],
            )
            .values({part: after[part] for part in changes})
        )
        return connection.execute(statement).rowcount == 1

    # -- nodes and workers

    def register_node(self, connection: Connection, host: str, process: int, version: str, at: datetime) -> int:
        """A number that no other start has had or will have; usable once this has returned."""
        known = connection.scalar(select(func.max(node.c.id))) or 0
        values = {"host": host[:255], "process": process, "version": version[:32], "started_at": at}
        key = connection.execute(insert(node).values(values)).inserted_primary_key
        number = int(key[0]) if key else 0
        if number <= known:
            raise MaxValueWentBack(
                f"node {number} was registered, but node {known} was known before: the counter of allocator_node was "
                "set back; raise it above the greatest number"
            )
        return number

    def list_nodes(self, connection: Connection, last: int) -> list[Node]:
        rows = connection.execute(select(node).order_by(node.c.id.desc()).limit(last))
        return [Node(row.id, row.host, row.process, row.version, row.started_at.replace(tzinfo=UTC)) for row in rows]

    def list_workers(self, connection: Connection) -> list[Worker]:
        rows = connection.execute(select(worker).order_by(worker.c.number))
        return [Worker(r.number, r.layout, r.epoch_ms, r.holder, r.until_ms, r.host, r.process) for r in rows]

    def add_worker(self, connection: Connection, fresh: Worker) -> bool:
        """Write the first lease of a worker number; False if somebody else just did."""
        added = self.insert_missing_worker.execution_options(preserve_rowcount=True)
        return connection.execute(added, columns_of(fresh)).rowcount == 1

    def take_worker(self, connection: Connection, old: Worker, fresh: Worker) -> bool:
        """Write a lease over one that has ended; False if it is not `old` any more."""
        statement = update(worker).where(
            worker.c.number == old.number, worker.c.holder == old.holder, worker.c.until_ms == old.until
        )
        return connection.execute(statement.values(columns_of(fresh))).rowcount == 1

    def renew_worker(self, connection: Connection, number: int, holder: str, until: int) -> bool:
        """Write that a lease goes on; False if another process holds the worker now."""
        later = self.greatest(worker.c.until_ms, until)
        statement = update(worker).where(worker.c.number == number, worker.c.holder == holder).values(until_ms=later)
        return connection.execute(statement).rowcount == 1

    def greatest(self, value: ColumnElement[int], other: int) -> ColumnElement[int]:
        return func.greatest(value, other)

    def greatest_in(self, connection: Connection, table_name: str, column_name: str) -> object:
        """The greatest value of a column of the host's own, None for an empty table."""
        schema, _, bare = table_name.rpartition(".")
        source = table(bare, column(column_name), schema=schema or None)
        return connection.scalar(select(func.max(source.c[column_name])))


def only_row(rows: Sequence[Any], name: str) -> int | None:
    """What a claim returned, if it is what a sound table returns."""
    if len(rows) > 1:
        raise damaged(name, f"there are {len(rows)} rows")
    value: object = rows[0][0] if rows else None
    if value is not None and not isinstance(value, int):
        raise damaged(name, f"max_value is {value!r}")
    return value


def as_tag(row: Any) -> Tag:
    return Tag(row.tag, row.max_value, row.step, row.max_step, row.id_limit)


def columns_of(fresh: Worker) -> dict[str, object]:
    return {
        "number": fresh.number,
        "layout": fresh.layout,
        "epoch_ms": fresh.epoch,
        "holder": fresh.holder,
        "until_ms": fresh.until,
        "host": fresh.host[:255],
        "process": fresh.process,
    }


def row_of(tag: Tag) -> dict[str, object]:
    return {
        "tag": tag.name,
        "max_value": tag.max_value,
        "step": tag.step,
        "max_step": tag.max_step,
        "id_limit": tag.limit,
    }
