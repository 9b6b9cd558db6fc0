"""The rows of `allocator_lease`: worker numbers by space, each taken, renewed and released by one statement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Update, case, insert, literal, literal_column, select, text, update

from allocator.database.dialect import Dialect
from allocator.database.tables import lease, shard
from allocator.database.verbs import shard_row
from allocator.database.verbs.segments import greater
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, NumberRow

READ = ("holder", "renewals", "until_ms", "used_until_ms")
"""A row is leased only if these are as they were read: else another process was faster."""


def fetch(connection: Connection, dialect: Dialect, space: str) -> tuple[int, list[NumberRow]]:
    """The database's clock, and the numbers of a space that were ever leased."""
    # One row that is always there: the clock is wanted also of a space without numbers.
    one = select(literal_column("1").label("one")).subquery("one")
    rows = one.outerjoin(lease, lease.c.space == space)
    found = connection.execute(select(clock(dialect).label("at"), *lease.c).select_from(rows)).all()
    return int(found[0].at), [as_row(row) for row in found if row.space is not None]


def fetch_all(connection: Connection, dialect: Dialect) -> tuple[int, dict[str, list[NumberRow]]]:
    """The database's clock, and the numbers by space."""
    at = int(connection.scalar(select(clock(dialect))) or 0)
    spaces: dict[str, list[NumberRow]] = {}
    for row in connection.execute(select(lease).order_by(lease.c.space, lease.c.number)):
        spaces.setdefault(row.space, []).append(as_row(row))
    return at, spaces


def begin(connection: Connection, dialect: Dialect, spaces: Mapping[str, NumberRow], residue: Residue) -> None:
    """Let a new slot lease as the others do: of each space its first number has the length and format of their row."""
    for space, row in spaces.items():
        values = asdict(replace(row, number=residue.offset - 1, holder=""))
        connection.execute(insert(lease).values(space=space, **values))


def take(connection: Connection, dialect: Dialect, chosen: NumberRow | int, claim: NumberClaim, known: Shard) -> bool:
    """Lease a number; False if its row has changed since `chosen`, or the database has moved since `known`."""
    given = {**columns_of(claim), "until_ms": clock(dialect) + claim.length_ms}
    if isinstance(chosen, int):
        row = {**given, "space": claim.space, "number": chosen}
        made = shard_row.insert_under(connection, dialect, known, lease, row, end=dialect.words.or_nothing)
        return connection.execute(made.prefix_with(dialect.words.ignore)).rowcount == 1
    as_it_was = (lease.c[name] == getattr(chosen, name) for name in READ)
    fence = shard_row.fence_exists(connection, dialect, known)
    used = greater(lease.c.used_until_ms, claim.wall_ms + claim.length_ms)
    statement = of(claim.space, chosen.number).where(*as_it_was, fence).values({**given, "used_until_ms": used})
    return connection.execute(statement).rowcount == 1


def renew(connection: Connection, dialect: Dialect, held: NumberLease, wall_ms: int) -> bool:
    """Extend a lease; False if another process has it or nobody, its length or its slot is another one, or the wall
    clock is too far ahead."""
    ours = (
        lease.c.holder == held.holder,
        lease.c.length_ms == held.length_ms,  # else the others would take it before this holder stops
        # The wait after a failover allows for a wall clock that is ahead by half a length, and no more.
        clock(dialect) >= wall_ms - held.length_ms // 2,
        # Since `shards make` a number may be one of another slot.
        select(shard.c.id).where(literal(held.number) % shard.c.slots == shard.c.slot - 1).exists(),
        text(dialect.words.lasting),
    )
    statement = of(held.space, held.number).where(*ours)
    later = {
        "renewals": lease.c.renewals + 1,
        "until_ms": clock(dialect) + held.length_ms,
        "used_until_ms": greater(lease.c.used_until_ms, wall_ms + held.length_ms),
    }
    return connection.execute(statement.values(later)).rowcount == 1


def release(connection: Connection, dialect: Dialect, held: NumberLease, used_ms: int) -> bool:
    """Give a number back; False if another process holds it.

    The holder is believed, since a server after a failover may lack its renewals; but for three lengths at most.
    """
    ours = (lease.c.holder == held.holder, text(dialect.words.lasting))
    latest = clock(dialect) + 3 * held.length_ms
    used = case((latest > used_ms, used_ms), else_=latest)
    statement = of(held.space, held.number).where(*ours).values(holder="", used_until_ms=used)
    return connection.execute(statement).rowcount == 1


def of(space: str, number: int) -> Update:
    return update(lease).where(lease.c.space == space, lease.c.number == number)


def clock(dialect: Dialect) -> ColumnElement[int]:
    return literal_column(dialect.words.clock, lease.c.until_ms.type)


def columns_of(claim: NumberClaim) -> dict[str, Any]:
    return {
        "bits": claim.bits,
        "length_ms": claim.length_ms,
        "holder": claim.holder,
        "renewals": 0,
        "used_until_ms": claim.wall_ms + claim.length_ms,
        "host": claim.host[:255],
        "process": claim.process,
        "format": claim.format,
    }


def as_row(row: Any) -> NumberRow:
    return NumberRow(**{name: getattr(row, name) for name in NumberRow.__slots__})
