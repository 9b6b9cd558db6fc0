"""Which triggers and rules on a table are not those of the guard, `guard.sql` in the database's folder."""

from __future__ import annotations

from importlib.resources import files

from sqlalchemy import Connection, text

from allocator.database.dialect import Dialect
from allocator.database.schema.tables import segment


def strangers(connection: Connection, dialect: Dialect, table_name: str) -> dict[str, str]:
    """Triggers and rules on a table that are not the guard's, or were changed, with the statements that drop them."""
    found = dialect.triggers(connection, table_name)
    if not found or not dialect.guard_query or table_name != segment.name:
        return found
    guard = squeezed(files(f"allocator.database.{dialect.name}").joinpath("guard.sql").read_text())
    rows = connection.execute(text(dialect.guard_query))
    ours = {name for name, *parts in rows if all(squeezed(part) in guard for part in parts)}
    return {name: drop for name, drop in found.items() if name not in ours}


def squeezed(words: str) -> str:
    """A client may have changed the white space."""
    return " ".join(words.split())
