"""The rows of the page of integer keys: the worst first. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

from allocator.rules.key_columns import SOON, KeyColumn

MOST = 1000
"""Keys on the page, which has no search: the worst."""


class KeyRow(NamedTuple):
    """A key, and the days until it ends at the rate of the last day; None without a rate."""

    key: KeyColumn
    days: float | None

    @property
    def needs_attention(self) -> bool:
        ends_soon = self.days is not None and self.days < SOON
        return ends_soon or self.key.is_full_or_unread


def rows_of(keys: Iterable[KeyColumn], days: Mapping[str, float]) -> list[KeyRow]:
    """days: by the name of the key; infinite without a rate."""
    known = ((key, days.get(key.name, inf)) for key in keys)
    rows = [KeyRow(key, None if left == inf else left) for key, left in known]
    return sorted(rows, key=lambda row: (inf if row.days is None else row.days, -row.key.used, row.key.name))[:MOST]
