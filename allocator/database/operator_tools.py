"""What a database's folder has for commands, the doctor and bound columns: see `Dialect.tools`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import NamedTuple

from sqlalchemy import Connection

from allocator.database.columns.integer_keys import KeyQueries
from allocator.database.doctor_queries.questions import Question
from allocator.database.schema.grants import Rights
from allocator.database.schema.guard import Guard
from allocator.rules.findings import Rules
from allocator.rules.takeover_ranges import ColumnFacts


class Tools(NamedTuple):
    """What a database has for these; no draw of ids needs it.

    guard: None where no table may have triggers. takeover: a module; None where no column can be taken over.
    rights: None where there are no users.
    """

    guard: Guard | None
    questions: Sequence[Question]
    rules: Rules
    keys: KeyQueries
    fetch_facts: Callable[[Connection, str, str, str], ColumnFacts]
    takeover: ModuleType | None = None
    rights: Callable[[Connection, str], Rights] | None = None
