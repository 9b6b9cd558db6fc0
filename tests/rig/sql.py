"""What an administrator does by hand, past the library."""

from __future__ import annotations

from typing import Any

from sqlalchemy import create_engine, text


def execute(url: str, *statements: str) -> None:
    """Each committed for itself, by a connection of its own."""
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    percent = "%%" if engine.driver == "pymysql" else "%"  # it fills in what was not given
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement.replace("%", percent))
    finally:
        engine.dispose()


def values(url: str, question: str) -> list[Any]:
    """The first column of what is there."""
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            return list(connection.scalars(text(question)))
    finally:
        engine.dispose()
