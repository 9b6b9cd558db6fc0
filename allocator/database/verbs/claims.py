"""Claim a segment from a row of `allocator_segment`: one statement, a whole text in the file of each database."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, TextClause, text

from allocator.database.dialect import run_of
from allocator.errors import SchemaDamaged
from allocator.schemes.shared.residues import Residue

if TYPE_CHECKING:
    from allocator.database.dialect import Dialect


class Terms(NamedTuple):
    """What the rows must be, as they were read: the statement checks each again.

    residue: of the database. A row of another one does not match: the tag is closed, or its database is in a fleet now.
    was: the key of the move in the tag's row.
    now, run: the key in the shard's row, and the server run there, which is also the one that answers.
    skip: the numbers that the tag skips, 0 where `was` is `now`.
    """

    residue: Residue
    was: int
    now: int
    run: str
    skip: int = 0


def claim(connection: Connection, dialect: Dialect, name: str, size: int, terms: Terms, seen: int) -> int | None:
    """Claim the next `size` ids of a residue: one round trip.

    Returns the end of their window, or None where no row matched: the tag is missing, too close to its limit, or
    another one than `terms`; the database has moved; or the row is below `seen`. There `GREATEST(max_value, :seen)`
    would continue, and another process may claim again what a third one still holds: no further id is safe.
    """
    residue, was, now, run, skip = terms
    parameters: dict[str, object] = {
        "name": name,
        "span": size * residue.step,
        "skip": skip,
        "seen": seen,
        "residue_offset": residue.offset,
        "residue_step": residue.step,
        "was": was,
        "now": now,
        "run": run,
    }
    statement = claiming(dialect.claiming, run_of(connection), dialect.lasting(connection))
    return dialect.claim(connection, statement, parameters, name)


@cache
def claiming(statement: str, run: str, lasting: str) -> TextClause:
    return text(statement.strip().format(run=run, lasting=lasting))


def triggered(name: str, table_name: str) -> SchemaDamaged:
    """MySQL reports no insert id where a trigger fires, whoever may see the trigger."""
    return SchemaDamaged(
        f"{name!r}: the server reported no insert id, as where a table has a trigger; no id was issued; find it with "
        f"SHOW TRIGGERS LIKE '{table_name}', and drop it: DROP TRIGGER name"
    )
