"""The table of the tags: its rows, which of them are searched for, their order and pages. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil, inf
from typing import NamedTuple

from allocator.rules.days_left import DAY
from allocator.schemes.tag import Tag

PAGE = 50
IDLE = 0.01
"""Ids a second that count as none."""
SOON_SECONDS = 3.0
SOON_DAYS = 30.0

NAME, RATE, MEMORY, DAYS, CLAIMED = SORTS = ("name", "rate", "memory", "days", "claimed")


@dataclass(frozen=True, slots=True)
class Query:
    text: str = ""
    sort: str = NAME
    page: int = 1


class Figure(NamedTuple):
    """Of one tag: ids a second, ids in memory, how many seconds they last, seconds of the last claim."""

    rate: float = 0.0
    held: int = 0
    lasting: float = inf
    refill: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """`tag` is None while only memory knows it; `days` is None where nothing says how fast it is used up."""

    name: str
    tag: Tag | None
    figure: Figure
    days: float | None

    @property
    def is_short(self) -> bool:
        return self.figure.lasting < SOON_SECONDS

    @property
    def ends_soon(self) -> bool:
        return self.days is not None and self.days < SOON_DAYS


def row_of(name: str, tag: Tag | None, figure: Figure | None, days: float | None) -> Row:
    """days: measured over the last day; where that says nothing, the current rate does."""
    figure = figure or Figure()
    if tag is None:
        days = None
    elif days is None or days == inf:
        days = (tag.limit - tag.max_value) / figure.rate / DAY if figure.rate > IDLE else None
    return Row(name, tag, figure, days)


@dataclass(frozen=True, slots=True)
class Page:
    """One page of names; `number` counts from 1."""

    names: Sequence[str]
    number: int
    pages: int
    found: int
    total: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE + 1 if self.found else 0

    @property
    def last(self) -> int:
        return min(self.number * PAGE, self.found)


def page_of(names: Sequence[str], query: Query, key: Callable[[str], float] | None) -> Page:
    """`names` come in order, and stay so without a `key`."""
    found = matching(names, query.text)
    if key:
        found.sort(key=key)
    pages = max(1, ceil(len(found) / PAGE))
    number = min(max(1, query.page), pages)
    return Page(found[(number - 1) * PAGE : number * PAGE], number, pages, len(found), len(names))


def matching(names: Iterable[str], text: str) -> list[str]:
    """Names that contain the text, in any case; with a `*`, names that match as a whole."""
    wanted = text.strip().lower()
    if "*" in wanted:
        return [name for name in names if fnmatchcase(name.lower(), wanted)]
    return [name for name in names if wanted in name.lower()]


def sort_key(sort: str, row: Callable[[str], Row]) -> Callable[[str], float] | None:
    """The greatest rates and values come first, and the least seconds and days; None keeps the order of names."""

    def days(name: str) -> float:
        left = row(name).days
        return inf if left is None else left

    def claimed(name: str) -> float:
        tag = row(name).tag
        return inf if tag is None else -tag.max_value

    keys: dict[str, Callable[[str], float]] = {
        RATE: lambda name: -row(name).figure.rate,
        MEMORY: lambda name: row(name).figure.lasting,
        DAYS: days,
        CLAIMED: claimed,
    }
    return keys.get(sort)
