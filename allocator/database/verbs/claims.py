"""Claim a segment from a row of `allocator_segment`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, TextClause, text

from allocator.errors import SchemaDamaged
from allocator.rules.failover import Crossing
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import damaged

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect

CLAIM = (
    "UPDATE allocator_segment SET max_value = {raised}, claimed_at = {clock}{moved} WHERE tag = :name "
    "AND max_value <= id_limit - :span AND max_value >= :seen "
    "AND shard_offset = :residue_offset AND shard_step = :residue_step AND {here}{returning}"
)
"""A row that was not written `here`, an SQL condition, does not match, nor does one of another residue: the fleet has
grown.

The guard on :seen refuses, where `GREATEST(max_value, :seen)` would continue: from a row that fell back another process
may claim again what a third one still holds, so no further id of the tag is safe.
"""
MOVED = ", server_run = :run, skipped = skipped + :skip"
WAS = "server_run = :was AND {server} = :server"


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
        return dialect.claim(connection, claiming(dialect, dialect.may_claim(connection)), parameters, name)
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
    found = f"{WAS.format(server=dialect.server_here(connection))} AND {dialect.lasting(connection)}"
    return dialect.claim(connection, claiming(dialect, found, MOVED), crossed, name)


@cache
def claiming(dialect: Dialect, here: str, moved: str = "") -> TextClause:
    """The claim; where the row is `moved`, from another server run to this one."""
    words = {"raised": dialect.raised, "clock": dialect.clock, "returning": dialect.returning}
    return text(CLAIM.format(here=here, moved=moved, **words))


def returned(connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
    """Run a claim that returns `max_value`: see `Dialect.claim`."""
    return only_row(connection.execute(claim, parameters).all(), name)


def triggered(name: str, table_name: str) -> SchemaDamaged:
    """MySQL reports no insert id where a trigger fires, whoever may see the trigger."""
    return SchemaDamaged(
        f"{name!r}: the server reported no insert id, as where a table has a trigger; no id was issued; find it with "
        f"SHOW TRIGGERS LIKE '{table_name}', and drop it: DROP TRIGGER name"
    )


def only_row(rows: Sequence[Any], name: str) -> int | None:
    """The value that a claim returned. Raises what a damaged table causes."""
    if len(rows) > 1:
        raise damaged(name, f"there are {len(rows)} rows")
    value: object = rows[0][0] if rows else None
    if value is not None and not isinstance(value, int):
        raise damaged(name, f"max_value is {value!r}")
    return value
