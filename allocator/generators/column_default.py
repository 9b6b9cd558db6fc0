"""A sequence as the default of a column of SQLAlchemy, which is imported only once it asks for one.

A default is called with the context of its statement, once for each row; but only once for all rows of an INSERT from a
SELECT or of an UPDATE, which therefore are refused. A column whose ids the database generates too is refused as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from allocator.errors import InvalidDatabase, InvalidSetting

NEXT_VALUE = re.compile(r"next[ _]?(sequence )?val", re.IGNORECASE)
"""In the text of a server default that draws from a sequence of the database."""


def of_a_row(context: object) -> int:
    """The signature of a default that wants its context; never called."""
    raise NotImplementedError


def default_signature() -> Callable[[object], int]:
    """`of_a_row`, for SQLAlchemy, which asks for it while it makes a default of a sequence."""
    watch_columns()
    return of_a_row


@cache
def watch_columns() -> None:
    from sqlalchemy import Column, event

    event.listen(Column, "after_parent_attach", check_only_generator)


def check_only_generator(column: Any, _: object) -> None:
    """Raise `InvalidSetting` where the database generates ids for a column whose default is ours.

    "auto" becomes False: SQLAlchemy takes it for False beside a default, but a migration that Alembic writes has no
    default, and would make a SERIAL or AUTO_INCREMENT column.
    """
    default: Any = getattr(column.default, "arg", None)
    if getattr(default, "__func__", None) is not of_a_row:
        return
    if column.autoincrement == "auto":
        column.autoincrement = False
    if found := own_generator(column):
        raise InvalidSetting(
            f"{column} has two generators, which would give the same ids: tag {default.tag!r} and {found}; write "
            "autoincrement=False, and no Identity() or server_default"
        )


def own_generator(column: Any) -> str | None:
    """What makes the database generate the values of a column, as the user wrote it."""
    if column.autoincrement:
        return f"autoincrement={column.autoincrement!r}"
    if column.identity is not None:
        return "Identity()"
    told = str(getattr(column.server_default, "arg", ""))
    return f"server_default={told}" if NEXT_VALUE.search(told) else None


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
