"""The spaces of worker numbers as an operator sees them: who holds what, and how many are free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allocator.schemes.worker_number_lease import NumberRow, is_over


class Space(NamedTuple):
    """`held` are the numbers that no other process may take yet; the settings are those of the newest lease."""

    name: str
    bits: int
    length_ms: int
    held: list[NumberRow]

    @property
    def free(self) -> int:
        return (1 << self.bits) - sum(row.number < 1 << self.bits for row in self.held)


def spaces_of(rows: Mapping[str, Sequence[NumberRow]], at_ms: int) -> list[Space]:
    """`at_ms` is the database's clock; each space has at least one row."""
    newest = {name: max(found, key=lambda row: row.until_ms) for name, found in rows.items()}
    return [
        Space(name, one.bits, one.length_ms, [row for row in rows[name] if not is_over(row, at_ms)])
        for name, one in newest.items()
    ]
