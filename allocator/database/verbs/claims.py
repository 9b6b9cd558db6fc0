"""Claim from the rows of `allocator_segment`: for one tag, or for several at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    String,
    TextClause,
    Update,
    bindparam,
    column,
    literal_column,
    select,
    table,
    text,
    update,
)

from allocator.database.driver_connection import by_driver, execute
from allocator.database.schema.tables import segment
from allocator.rules.failover import Crossing
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import damaged

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect

RAISED = segment.c.max_value + bindparam("span", type_=BigInteger)
CROSSING = {
    "server_run": bindparam("run", type_=String),
    "skipped": segment.c.skipped + bindparam("skip", type_=BigInteger),
}
WAS = "server_run = :was AND {server} = :server"

FIELDS = ("name", "span", "seen", "residue_offset", "residue_step")
MIN_BATCH = 2
"""From this many tags on a batch is cheaper than single claims."""


class Wanted(NamedTuple):
    """The claim of one tag in a batch: `size` ids of a residue, above `seen`."""

    name: str
    size: int
    residue: Residue
    seen: int

    @property
    def span(self) -> int:
        return self.size * self.residue.step


def claimable(row: Any, claim: Any) -> list[ColumnElement[bool]]:
    """What the columns of a row must fulfil for a claim, whose columns or parameters are named as `FIELDS`.

    A row of another residue does not match: the fleet has grown.

    The guard on `seen` refuses, where `GREATEST(max_value, :seen)` would continue: from a row that fell back another
    process may claim again what a third one still holds, so no further id of the tag is safe.
    """
    return [
        row.tag == claim.name,
        row.max_value <= row.id_limit - claim.span,
        row.max_value >= claim.seen,
        row.shard_offset == claim.residue_offset,
        row.shard_step == claim.residue_step,
    ]


GIVEN = SimpleNamespace(name=bindparam("name"), **{name: bindparam(name, type_=BigInteger) for name in FIELDS[1:]})
CLAIMABLE = " AND ".join([*map(str, claimable(segment.alias("s").c, table("w", *map(column, FIELDS)).c)), "{here}"])
"""For the row `s` and its claim `w` of a batch; `server_run` needs no alias, since only `s` has it."""


def claiming(max_value: ColumnElement[int], clock: str, here: str) -> Update:
    """Raise `max_value` by :span, unless that passes the limit or the row is below :seen.

    A row that was not written `here`, an SQL condition, does not match either: see `claimable`.
    """
    return (
        update(segment)
        .where(*claimable(segment.c, GIVEN), text(here))
        .values(max_value=max_value, claimed_at=literal_column(clock))
    )


@by_driver
def claim(
    connection: Connection,
    dialect: Dialect,
    name: str,
    size: int,
    residue: Residue,
    seen: int,
    crossing: Crossing | None = None,
) -> int | None:
    """Claim the next `size` ids of a residue: one statement, one round trip.

    Returns the end of their window, or None where no row matched: the tag is missing, too close to its limit,
    below `seen`, of another residue, or was last written on another server run and there is no `crossing`.
    """
    span = size * residue.step
    parameters = {
        "name": name,
        "span": span,
        "seen": seen,
        "residue_offset": residue.offset,
        "residue_step": residue.step,
    }
    if crossing is None:
        statement: Update | None = connection.info.get("claim")
        if statement is None:
            statement = connection.info["claim"] = staying(dialect, dialect.may_claim(connection))
        return dialect.claim(connection, statement, parameters, name)
    here, skip = crossing
    # The row may be below `seen`, where the failover forgot claims; with the skip it must be above.
    crossed: dict[str, object] = {
        **parameters,
        "span": span + skip,
        "seen": max(0, seen - skip),
        "was": here.was,
        "server": here.server,
        "run": here.run,
        "skip": skip,
    }
    moves = f"{WAS.format(server=dialect.server_here(connection))} AND {dialect.lasting(connection)}"
    return dialect.claim(connection, moving(dialect, moves), crossed, name)


@cache
def staying(dialect: Dialect, here: str) -> Update:
    return dialect.claim_statement(here)


@cache
def moving(dialect: Dialect, here: str) -> Update:
    """The claim that moves a row to another server run, if the statement still finds itself on that run."""
    return dialect.claim_statement(here).values(CROSSING)


def returning(dialect: Dialect, here: str) -> Update:
    """A claim that returns `max_value`: see `Dialect.claim_statement`."""
    return claiming(RAISED, dialect.clock, here).returning(segment.c.max_value)


def returned(connection: Connection, claim: Update, parameters: dict[str, object], name: str) -> int | None:
    """Run a claim that returns `max_value`: see `Dialect.claim`."""
    return only_row(execute(connection, claim, parameters).all(), name)


def only_row(rows: Sequence[Any], name: str) -> int | None:
    """The value that a claim returned. Raises what a damaged table causes."""
    if len(rows) > 1:
        raise damaged(name, f"there are {len(rows)} rows")
    value: object = rows[0][0] if rows else None
    if value is not None and not isinstance(value, int):
        raise damaged(name, f"max_value is {value!r}")
    return value


def claim_batch(connection: Connection, dialect: Dialect, wanted: Sequence[Wanted]) -> dict[str, int] | None:
    """Claim for those of these tags whose rows are not locked: the end of the window of each.

    No tag delays the others, and two batches never wait for each other. A tag that is not claimed (its row is locked,
    missing, near its limit, or went back) is left to the claim of one tag. None where that is so of all: the table is
    damaged, or none of the rows was written on this server run, to which each crosses alone.
    """
    rows = [dict(zip(FIELDS, (one.name, one.span, one.seen, *one.residue), strict=True)) for one in wanted]
    claimed = dialect.claim_batch(connection, {"wanted": json.dumps(rows)})
    if claimed is None:
        return None
    if not claimed:
        names = [one.name for one in wanted]
        here = select(segment.c.tag).where(segment.c.tag.in_(names), text(dialect.is_here(connection)))
        if connection.execute(here.limit(1)).first() is None:
            return None
    ends = {name: end for name, end in claimed if type(end) is int}
    return ends if len(ends) == len(claimed) else None


@cache
def batch_statement(sql: str, here: str, clock: str) -> TextClause:
    return text(sql.format(here=here, clock=clock)).bindparams(bindparam("wanted"))
