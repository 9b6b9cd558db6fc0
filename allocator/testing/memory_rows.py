"""The rows of the tags in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from allocator.errors import SchemaOutOfDate
from allocator.fleet.tags import COLUMNS
from allocator.rules.failover import plain, repaired
from allocator.schemes.tag import Tag

FIELDS = {column: name for name, column in COLUMNS.items() if name == "limit"}
"""Of `Tag`, where the columns are called otherwise."""


class Rows:
    """What `Tags` asks of a `Database`, each by `run`, one at a time."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run
        self._rows: dict[str, Tag] = {}

    def check_schema(self) -> None:
        """Tables are always as they should be."""

    def fetch_tag(self, name: str) -> Tag | None:
        found: Tag | None = self._run(self._rows.get, name)
        return found

    def fetch_tags(self) -> list[Tag]:
        found: list[Tag] = self._run(lambda: [self._rows[name] for name in sorted(self._rows)])
        return found

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        return [tag for tag in self.fetch_tags() if tag.name > after][:most]

    def count_tags(self) -> int:
        return len(self.fetch_tags())

    def create_tag(self, tag: Tag) -> bool:
        return self._run(self._rows.setdefault, tag.name, tag) is tag

    def change_tag(self, name: str, changes: Mapping[str, int]) -> bool:
        """False where the row is missing. That the changes fit, `Tags` has seen."""
        return bool(self._run(self._change, name, changes))

    def _change(self, name: str, changes: Mapping[str, int]) -> bool:
        row = self._rows.get(name)
        if row is None:
            return False
        fields: dict[str, Any] = {FIELDS.get(column, column): value for column, value in changes.items()}
        fields["max_value"] = max(row.max_value, fields.get("max_value", 0))
        self._rows[name] = replace(row, **fields)
        return True

    def repair_segment(self, tag: Tag, above: int | None) -> None:
        self._rows[tag.name] = replace(tag, max_value=repaired(tag, above, plain(tag.epoch, "memory")))

    def fetch_shard(self) -> None:
        """It is no shard of a fleet."""

    def greatest_of(self, table: str, column: str) -> int:
        raise SchemaOutOfDate(f"there is no table {table} in memory, with a column {column}")

    def raise_to(self, tag: Tag, last: int) -> None:
        self._rows[tag.name] = replace(tag, max_value=last)
