"""The ledger: which process claimed which ids, and when.

It answers a question of people and guards nothing. Unless it is required, a claim whose entry cannot be written is
made without one, and the ledger is left alone for a while.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Self

from allocator.errors import InvalidSetting
from allocator.schemes.lane import Lane
from allocator.schemes.limits import shown

DAY, MOST_DAYS = 86_400.0, 36_500.0

LEFT_ALONE = 60.0
"""Seconds after which a ledger that could not be written is tried again."""
MOMENT = 5.0
"""Seconds for which it is left alone where the whole database may be slow."""
SWEEP_EVERY = 3600.0
"""Seconds between two times that a process deletes what is too old."""


@dataclass(frozen=True, slots=True)
class LedgerSettings:
    """How claims are written down.

    keep_days: for how many days an entry is kept, more than 0 and 36500 at most; parts of a day too.
    required: a claim fails where its entry cannot be written; otherwise it is made without one.
    """

    keep_days: float = 90.0
    required: bool = False

    def checked(self) -> Self:
        days = self.keep_days
        if isinstance(days, bool) or not isinstance(days, int | float):
            raise InvalidSetting(f"keep_days must be a number, got {shown(days, 40)}")
        if not 0 < days <= MOST_DAYS:  # not-a-number fails too
            raise InvalidSetting(f"keep_days must be more than 0 and {MOST_DAYS:g} at most, got {shown(days)}")
        if not isinstance(self.required, bool):
            raise InvalidSetting(f"required must be True or False, got {shown(self.required, 40)}")
        return self


class Author(NamedTuple):
    """Who claims."""

    host: str
    process: int
    version: str


class Entry(NamedTuple):
    """The ids of a lane above `above` and up to `upto` were claimed by `author`, so many seconds after 1970."""

    tag: str
    above: int
    upto: int
    lane: Lane
    author: Author
    claimed_s: int

    @property
    def ids(self) -> range:
        return self.lane.ids(self.upto, (self.upto - self.above) // self.lane.step)

    @property
    def claimed_at(self) -> datetime:
        return datetime.fromtimestamp(self.claimed_s, UTC)


class Standing:
    """Whether the ledger of one database is written now, and swept. `now` is the caller's monotonic clock."""

    __slots__ = ("_back_at", "_sweep_at")

    def __init__(self, now: float) -> None:
        self._back_at = self._sweep_at = now

    def is_trusted(self, now: float) -> bool:
        return now >= self._back_at

    def failed(self, now: float) -> None:
        self._back_at = now + LEFT_ALONE

    def paused(self, now: float) -> None:
        """It took its time; whether that is the ledger's fault nobody knows yet."""
        self._back_at = max(self._back_at, now + MOMENT)

    def begins_sweep(self, now: float) -> bool:
        """True once in a while: whoever is told so deletes what is too old."""
        if now < self._sweep_at:
            return False
        self._sweep_at = now + SWEEP_EVERY
        return True
