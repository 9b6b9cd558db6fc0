"""What a database's folder has for commands and the doctor: see `Dialect.tools`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.database.columns.integer_keys import KeyQueries
from allocator.database.columns.tag_columns import Found
from allocator.database.doctor_queries.questions import Question
from allocator.rules.findings import Rules


class Tools(NamedTuple):
    """What a database has for these; no draw of ids needs it."""

    questions: Sequence[Question]
    rules: Rules
    keys: KeyQueries
    fetch_column: Callable[[Connection, str, str, str], Found | None]
