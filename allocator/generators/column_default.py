"""What SQLAlchemy passes to the default of a column, looked at without importing it.

A default is called with the context of its statement, once for each row; but only once for all rows of an INSERT from a
SELECT or of an UPDATE, which therefore are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from allocator.errors import InvalidDatabase, InvalidSetting


def of_a_row(context: object) -> int:
    """The signature of a default that wants its context; never called."""
    raise NotImplementedError


def check_each_row(context: Any, name: str) -> None:
    """Raise `InvalidSetting` where all rows of a statement would get one id. `name` is of what is drawn."""
    compiled = getattr(context, "compiled", None)
    check_inserted(compiled, name)
    common = [element.element for element in getattr(compiled, "ctes", None) or ()]
    for statement in (getattr(compiled, "statement", None), *common):
        if getattr(statement, "is_insert", False) and statement.select is not None:
            raise InvalidSetting(
                f"{name}: all rows of this statement would get the same id, as a query gives them; read the rows and "
                "insert them, or let the query number them from the start of a block of reserve()"
            )


def check_inserted(compiled: Any, name: str) -> None:
    """SQLAlchemy calls the defaults of an INSERT, or where a statement has none of these, what is set `onupdate`."""
    if getattr(compiled, "update_prefetch", None) and not compiled.insert_prefetch:
        raise InvalidSetting(
            f"{name}: a sequence is the default of a column, not its onupdate: all rows of this statement would get "
            "the same id; draw one for each row, and write the rows one by one"
        )


def check_not_held(connection: Any, files: Sequence[str], name: str) -> None:
    """Raise `InvalidDatabase` where a claim would wait for the very transaction that waits for it.

    An embedded database is written by one connection at a time, and a claim needs one of its own.
    """
    database = connection.engine.url.database
    if not files or not database or not is_in_transaction(connection):
        return
    if Path(database).resolve() in {Path(file).resolve() for file in files}:
        raise InvalidDatabase(
            f"{name}: no ids are in memory, and a claim would wait for this transaction, which keeps {database} to "
            "itself until it ends; give the allocator a file of its own, or draw the ids before the first change"
        )


def is_in_transaction(connection: Any) -> bool:
    """As far as the driver of an embedded database says so; the others have room for several writers."""
    return getattr(connection.connection.driver_connection, "in_transaction", False) is True
