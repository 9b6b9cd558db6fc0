"""The rows of the tags in memory, by the verbs of `allocator.database`, so that `Tags` does the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from allocator.errors import SchemaOutOfDate
from allocator.fleet.tags import COLUMNS
from allocator.rules.failover import plain, repaired
from allocator.schemes.tag import Tag

T = TypeVar("T")

FIELDS = {column: name for name, column in COLUMNS.items() if name == "limit"}
"""Of `Tag`, where the columns are called otherwise."""


class Rows:
    """Each verb runs by `run`, as on a database; one at a time."""

    def __init__(self, run: Callable[..., T]) -> None:
        self.run = run
        self.dialect = self
        self._rows: dict[str, Tag] = {}

    def check_schema(self) -> None:
        """Tables are always as they should be."""

    def read_segment(self, name: str) -> Tag | None:
        return self._rows.get(name)

    def list_segments(self) -> list[Tag]:
        return [self._rows[name] for name in sorted(self._rows)]

    def list_some_segments(self, after: str, most: int) -> list[Tag]:
        return [tag for tag in self.list_segments() if tag.name > after][:most]

    def count_segments(self) -> int:
        return len(self._rows)

    def create_segment(self, tag: Tag) -> bool:
        return self._rows.setdefault(tag.name, tag) is tag

    def set_segment(self, name: str, changes: Mapping[str, int]) -> bool:
        """False where the row is missing. That the changes fit, `Tags` has seen."""
        row = self._rows.get(name)
        if row is None:
            return False
        fields: dict[str, Any] = {FIELDS.get(column, column): value for column, value in changes.items()}
        fields["max_value"] = max(row.max_value, fields.get("max_value", 0))
        self._rows[name] = replace(row, **fields)
        return True

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        self._rows[tag.name] = replace(tag, max_value=repaired(tag, above, plain(tag.epoch, "memory")))

    def read_shard(self) -> None:
        """It is no shard of a fleet."""

    def greatest_in(self, table: str, column: str) -> int:
        raise SchemaOutOfDate(f"there is no table {table} in memory, with a column {column}")

    def raise_to(self, tag: Tag, last: int) -> None:
        self._rows[tag.name] = replace(tag, max_value=last)
