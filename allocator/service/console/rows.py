"""The table of tags: rows, search, order and pages. Pure."""

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
"""Ids per second. At a slower rate a row shows no days left."""
SOON_SECONDS = 3.0
SOON_DAYS = 30.0

NAME = "name"


@dataclass(frozen=True, slots=True)
class Query:
    text: str = ""
    sort: str = NAME
    page: int = 1


class TagMetrics(NamedTuple):
    """The figures of a tag: ids per second, ids in memory, seconds that these last, seconds of the last claim."""

    rate: float = 0.0
    held: int = 0
    lasting: float = inf
    refill: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table. `tag` is None until the database has answered; `days` is None without a rate."""

    name: str
    tag: Tag | None
    metrics: TagMetrics
    days: float | None

    @property
    def is_short(self) -> bool:
        return self.metrics.lasting < SOON_SECONDS

    @property
    def ends_soon(self) -> bool:
        return self.days is not None and self.days < SOON_DAYS


def row_of(name: str, tag: Tag | None, metrics: TagMetrics | None, days: float | None) -> Row:
    """Make a row. `days` is from the last day; without it, estimate from the current rate."""
    metrics = metrics or TagMetrics()
    if tag is None:
        days = None
    elif days is None or days == inf:
        days = (tag.limit - tag.max_value) / metrics.rate / DAY if metrics.rate > IDLE else None
    return Row(name, tag, metrics, days)


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
    """Select a page of `names`, which are sorted; sort them by `key` if given."""
    found = matching(names, query.text)
    if key:
        found.sort(key=key)
    pages = max(1, ceil(len(found) / PAGE))
    number = min(max(1, query.page), pages)
    return Page(found[(number - 1) * PAGE : number * PAGE], number, pages, len(found), len(names))


def matching(names: Iterable[str], text: str) -> list[str]:
    """The names that contain the text, or match it if it holds a `*`; ignores case."""
    wanted = text.strip().lower()
    if "*" in wanted:
        return [name for name in names if fnmatchcase(name.lower(), wanted)]
    return [name for name in names if wanted in name.lower()]


ORDERS: dict[str, Callable[[Row], float]] = {
    "rate": lambda row: -row.metrics.rate,
    "memory": lambda row: row.metrics.lasting,
    "days": lambda row: inf if row.days is None else row.days,
    "max_value": lambda row: inf if row.tag is None else -row.tag.max_value,
}
"""The keys of the orders: greatest rates and values first, fewest seconds and days first."""
SORTS = (NAME, *ORDERS)


def sort_key(sort: str, row: Callable[[str], Row]) -> Callable[[str], float] | None:
    """The key of an order, for names; None for the order by name."""
    key = ORDERS.get(sort)
    return None if key is None else lambda name: key(row(name))
