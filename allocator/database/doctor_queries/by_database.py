"""All questions, by the database that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allocator.database.doctor_queries import mysql_queries, postgresql_queries, sqlite_queries
from allocator.database.doctor_queries.asking import Question

QUESTIONS: Mapping[str, Sequence[Question]] = {
    "postgresql": postgresql_queries.QUESTIONS,
    "mysql": mysql_queries.QUESTIONS,
    "sqlite": sqlite_queries.QUESTIONS,
}
"""By the name of the dialect."""
