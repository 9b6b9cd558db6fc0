"""Support for a sequence as the default of a SQLAlchemy column; SQLAlchemy is imported only when a model uses one.

SQLAlchemy calls a default with the context of the statement, once for each row. For INSERT from SELECT and for UPDATE
it calls once for all rows, so these are refused. A column for which the database generates ids too is refused as well.

The column calls `_of_row`, a bound method: calling the sequence itself, an object with `__call__`, takes twice as long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from allocator.errors import InvalidDatabase, InvalidSetting

NEXT_VALUE = r"(?i)next[ _]?(sequence )?val"
"""With such a server default the column has a second generator, which would issue the same ids."""


def of_a_row(context: object) -> int:
    """The signature of a default that takes the context; never called."""
    raise NotImplementedError


def default_signature() -> Callable[[object], int]:
    """`of_a_row`, which SQLAlchemy inspects when it makes a column default from a sequence."""
    watch_columns()
    return of_a_row


@cache
def watch_columns() -> None:
    from sqlalchemy import Column, event

    event.listen(Column, "after_parent_attach", take_column)


def sequence_of(column: Any) -> Any:
    """The sequence that is the default of a column, or None."""
    default: Any = getattr(column.default, "arg", None)
    sequence = getattr(default, "__self__", default)  # of a method, which `take_column` has set
    return sequence if getattr(sequence, "__func__", None) is of_a_row else None


def take_column(column: Any, _: object) -> None:
    """Check a column whose default is a sequence, and let SQLAlchemy call the method for its rows."""
    if (sequence := sequence_of(column)) is not None:
        check_only_generator(column, sequence.tag)
        column.default.arg = sequence._of_row


def check_only_generator(column: Any, tag: str) -> None:
    """Raise `InvalidSetting` if the database generates ids too for a column whose default is a sequence.

    Sets autoincrement "auto" to False. SQLAlchemy does so itself for a column with a default, but a migration by
    Alembic omits the default, and would create a SERIAL or AUTO_INCREMENT column.
    """
    if column.autoincrement == "auto":
        column.autoincrement = False
    if other := own_generator(column):
        raise InvalidSetting(
            f"{column} has two generators, which would issue the same ids: tag {tag!r} and {other}; set "
            "autoincrement=False, and remove Identity() and server_default"
        )


def own_generator(column: Any) -> str | None:
    """The setting by which the database generates the values of a column; None if it does not."""
    if column.autoincrement:
        return f"autoincrement={column.autoincrement!r}"
    if column.identity is not None:
        return "Identity()"
    default = str(getattr(column.server_default, "arg", ""))
    return f"server_default={default}" if re.search(NEXT_VALUE, default) else None


def check_each_row(context: Any, name: str) -> None:
    """Raise `InvalidSetting` if all rows of a statement would get the same id. `name` begins the message.

    Marks the compiled statement, so that `Sequence._of_row` checks it only once.
    """
    compiled = getattr(context, "compiled", None)
    check_inserted(compiled, name)
    common = [element.element for element in getattr(compiled, "ctes", None) or ()]
    for statement in (getattr(compiled, "statement", None), *common):
        if getattr(statement, "is_insert", False) and statement.select is not None:
            raise InvalidSetting(
                f"{name}: all rows of this statement would get the same id, since they come from a query; insert them "
                "one by one, or number them in the query, from the start of a block of reserve()"
            )
    if compiled is not None:
        compiled.allocator_each_row = True


def check_inserted(compiled: Any, name: str) -> None:
    """Raise `InvalidSetting` where a sequence is the `onupdate` of a column."""
    if getattr(compiled, "update_prefetch", None) and not compiled.insert_prefetch:
        raise InvalidSetting(
            f"{name}: a sequence cannot be the onupdate of a column, since all rows of a statement would get the same "
            "id; draw an id for each row, and change the rows one by one"
        )


def check_not_held(connection: Any, files: Sequence[str], name: str) -> None:
    """Raise `InvalidDatabase` if a claim would deadlock with the caller's transaction.

    SQLite has one writer at a time, and a claim uses its own connection.
    """
    database = connection.engine.url.database
    if not files or not database or not is_in_transaction(connection):
        return
    if Path(database).resolve() in {Path(file).resolve() for file in files}:
        raise InvalidDatabase(
            f"{name}: no ids are in memory, and a claim would wait for this transaction, which locks {database} until "
            "it ends; use a separate file for the allocator, or draw the ids before the first change"
        )


def is_in_transaction(connection: Any) -> bool:
    """Whether the driver of SQLite reports a transaction; False for drivers of servers."""
    return getattr(connection.connection.driver_connection, "in_transaction", False) is True
