"""What is listed, from plain numbers: which tags, in which order, which page of them, what is said of each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil, inf
from typing import NamedTuple

from allocator.rules.days_left import DAY
from allocator.schemes.tag import Tag

PAGE = 50
IDLE = 0.01
"""Ids a second that are none."""
SOON_SECONDS = 3.0
SOON_DAYS = 30.0

NAME, RATE, MEMORY, DAYS, CLAIMED = SORTS = ("name", "rate", "memory", "days", "claimed")


class Figure(NamedTuple):
    """What is measured of a tag: ids a second, ids in memory, for how many seconds they last, the last claim's time."""

    rate: float = 0.0
    held: int = 0
    lasting: float = inf
    refill: float = 0.0


def lasting(held: int, rate: float) -> float:
    """Seconds that so many ids last."""
    return held / rate if rate > IDLE else inf


def sum_of(parts: Iterable[Figure]) -> Figure:
    """Of all workers: each has ids of its own, so it is the one that runs dry first that counts."""
    known = list(parts)
    return Figure(
        sum(one.rate for one in known),
        sum(one.held for one in known),
        min((one.lasting for one in known), default=inf),
        max((one.refill for one in known), default=0.0),
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One tag. `tag` is None while only memory knows it; days is None where nothing says how fast it is used up."""

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


def days_left(tag: Tag, rate: float, measured: float | None) -> float | None:
    """As was measured over the last day; until that says something, as if the rate of the moment went on."""
    if measured is not None and measured != inf:
        return measured
    if rate > IDLE:
        return (tag.limit - tag.max_value) / rate / DAY
    return None


def row_of(name: str, tag: Tag | None, figure: Figure | None, measured: float | None) -> Row:
    known = figure or Figure()
    return Row(name, tag, known, None if tag is None else days_left(tag, known.rate, measured))


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


def matching(names: Iterable[str], text: str) -> list[str]:
    """Those with `text` in them, whatever its case; with a `*`, those that it matches as a whole."""
    wanted = text.strip().lower()
    if "*" in wanted:
        return [name for name in names if fnmatchcase(name.lower(), wanted)]
    return [name for name in names if wanted in name.lower()] if wanted else list(names)


def page_of(names: Sequence[str], text: str, sort: str, number: int, values: Callable[[str], float]) -> Page:
    """`names` come in order; another order puts the greatest values first, and those that need a look first."""
    found = matching(names, text)
    if sort != NAME:
        found.sort(key=values)
    pages = max(1, ceil(len(found) / PAGE))
    at = min(max(1, number), pages)
    return Page(found[(at - 1) * PAGE : at * PAGE], at, pages, len(found), len(names))


def sorting(
    sort: str, tags: Mapping[str, Tag], figures: Mapping[str, Figure], days: Mapping[str, float]
) -> Callable[[str], float]:
    """What a sort goes by, least first."""
    none = Figure()

    def of_days(name: str) -> float:
        left = row_of(name, tags.get(name), figures.get(name), days.get(name)).days
        return inf if left is None else left

    def of_claimed(name: str) -> float:
        return -tags[name].max_value if name in tags else inf

    by: dict[str, Callable[[str], float]] = {
        RATE: lambda name: -figures.get(name, none).rate,
        MEMORY: lambda name: figures.get(name, none).lasting,
        DAYS: of_days,
        CLAIMED: of_claimed,
    }
    return by.get(sort, lambda name: 0.0)
