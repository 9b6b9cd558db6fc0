"""All questions, by the database that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allocator.database.questions import mysql, postgresql, sqlite
from allocator.database.questions.asking import Question

QUESTIONS: Mapping[str, Sequence[Question]] = {
    "postgresql": postgresql.QUESTIONS,
    "mysql": mysql.QUESTIONS,
    "sqlite": sqlite.QUESTIONS,
}
"""By the name of the dialect."""
