"""Triggers that protect `allocator_segment`: `max_value` never falls, and no tag is deleted or renamed.

A user with the right to create triggers runs what `allocator db guard --sql` prints. The checks know the triggers by
name and text.
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, text

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import segment
from allocator.errors import InvalidSetting

FALL = "the guard keeps max_value of a tag from falling"
RENAME = "the guard keeps tags from being renamed"
DELETE = "the guard keeps tags from being deleted"
REPLACED = "the guard keeps the row of a tag from being replaced by a new one"


class Trigger(NamedTuple):
    """A trigger: the statement that creates it, and the catalog's description of the unchanged trigger."""

    name: str
    made: str
    described: tuple[object, ...]


def squeezed(words: object) -> object:
    """A client may have changed the white space."""
    return " ".join(words.split()) if isinstance(words, str) else words


class Guard(NamedTuple):
    """The guard of one database.

    query: what the catalog says of the triggers on the table. function: the statements that create anew what the
    triggers call. on: what DROP TRIGGER needs after the name.
    """

    triggers: tuple[Trigger, ...]
    query: str
    function: tuple[str, ...] = ()
    on: str = ""


def statements(dialect: Dialect) -> list[str]:
    """The statements that create the guard anew; those that begin with DROP remove it."""
    guard = guard_of(dialect)
    dropped = [f"DROP TRIGGER IF EXISTS {one.name}{guard.on}" for one in guard.triggers]
    return [*dropped, *guard.function, *(one.made for one in guard.triggers)]


def script(dialect: Dialect) -> str:
    """The statements for the database's own client."""
    return "\n".join(f"{one};" for one in statements(dialect))


def guard_of(dialect: Dialect) -> Guard:
    guard = dialect.tools().guard
    if guard is None:
        raise InvalidSetting(
            f"{dialect.name} has no guard: it reports no insert id for a table with a trigger, so each claim would be "
            "refused; grant the right to write allocator_segment to the service alone"
        )
    return guard


def strangers(connection: Connection, dialect: Dialect, table_name: str) -> dict[str, str]:
    """Triggers and rules on a table that are not the guard's, or were changed, with the statements that drop them."""
    found, guard = dialect.triggers(connection, table_name), dialect.tools().guard
    if not found or guard is None or table_name != segment.name:
        return found
    ours = {one.name: one.described for one in guard.triggers}
    found_as = {row[0]: tuple(map(squeezed, row[1:])) for row in connection.execute(text(guard.query))}
    return {name: drop for name, drop in found.items() if name not in ours or found_as.get(name) != ours[name]}
