"""What the pages show, brought together: of the databases for a while, of this worker and of the others now."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

from allocator.errors import AllocatorError, DatabaseUnavailable
from allocator.schemes.tag import Tag
from allocator.service.console.cached import PATIENCE, Cached, Held
from allocator.service.console.history import Sample, together
from allocator.service.console.peers import Peers, Told
from allocator.service.console.pulse import ALL, Pulse
from allocator.service.console.tag_table import Figure, Page, Row, page_of, row_of, sorting, sum_of
from allocator.service.console.visitors import Visitor
from allocator.service.readiness import Watch
from allocator.service.sequences import Sequences

TAGS_FOR = 3.0
"""Seconds after which the tags are read again."""
KNOWN_FOR = 60.0
"""Seconds for which a list of the tags is good enough to tell whether there is one, if no page wants a newer."""
AWAY_FOR = 4.0
"""Seconds after a failure for which a page of one tag does not wait for the databases itself."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page of the list is to show."""

    text: str = ""
    sort: str = "name"
    page: int = 1


@dataclass(frozen=True, slots=True)
class Listing:
    """rate: of ids of every kind for who sees all, else of the visitor's tags. shortest: the tag that runs dry first.
    workers: how many told their figures."""

    page: Page
    rows: list[Row]
    rate: float
    shortest: Row | None
    workers: int


class Board:
    def __init__(self, sequences: Sequences, pulse: Pulse, peers: Peers, watch: Watch) -> None:
        self._sequences = sequences
        self._pulse = pulse
        self._peers = peers
        self._watch = watch
        self.tags: Cached[dict[str, Tag]] = Cached(self._read_tags, TAGS_FOR)

    async def _read_tags(self) -> dict[str, Tag]:
        return {tag.name: tag for tag in await self._sequences.all()}

    @property
    def workers(self) -> int:
        return self._peers.workers

    # -- of all workers

    def _told(self, names: Iterable[str] = ()) -> list[Told]:
        others = self._peers.ask(names) if self._peers.are_there else []
        return [Told(self._pulse.rate(), dict(self._pulse.figures()), {}), *others]

    async def history(self, name: str) -> list[Sample]:
        others: list[Told] = []
        if self._peers.are_there and await self._is_known(name):
            others = await asyncio.to_thread(self._peers.ask, (name,))
        return together([self._pulse.samples(name), *(one.histories.get(name, []) for one in others)])

    async def _is_known(self, name: str) -> bool:
        """Whether the others may be asked for it, who keep a file for each name. False for what callers make up."""
        if name == ALL or self._pulse.samples(name) or await asyncio.to_thread(self._peers.is_asked, name):
            return True
        return name in ((await self.tags.get(within=KNOWN_FOR)).value or {})

    def told(self, names: list[str]) -> Told:
        """What this worker tells the others."""
        pulse = self._pulse
        return Told(pulse.rate(), dict(pulse.figures()), {name: pulse.samples(name) for name in names})

    # -- the list

    async def listing(self, visitor: Visitor, asked: Asked) -> tuple[Listing, Held[dict[str, Tag]]]:
        """The work of ten thousand tags is done on a thread: ids go on meanwhile."""
        held = await self.tags.get()
        return await asyncio.to_thread(self._listed, visitor, asked, held.value or {}), held

    def _listed(self, visitor: Visitor, asked: Asked, tags: Mapping[str, Tag]) -> Listing:
        told = self._told((ALL,))
        figures = by_tag(one.figures for one in told)
        names = sorted(tags.keys() | figures.keys())
        if not visitor.sees_all:
            names = [name for name in names if visitor.sees(name)]
            figures = {name: figures[name] for name in names if name in figures}
        days = self._watch.days
        page = page_of(names, asked.text, asked.sort, asked.page, sorting(asked.sort, tags, figures, days))
        rows = [row_of(name, tags.get(name), figures.get(name), days.get(name)) for name in page.names]
        shortest = min(figures, key=lambda name: figures[name].lasting, default=None)
        shown = None if shortest is None or figures[shortest].lasting == inf else shortest
        return Listing(
            page,
            rows,
            sum(one.rate for one in (told if visitor.sees_all else figures.values())),
            None if shown is None else row_of(shown, tags.get(shown), figures[shown], days.get(shown)),
            len(told),
        )

    # -- one tag

    async def row(self, tag: str) -> tuple[Row, AllocatorError | None]:
        """A tag as it is now; as it was read last, and why, where the databases do not answer. Raises `UnknownTag`."""
        found, error = await self._tag(tag)
        figure = (await asyncio.to_thread(self._figures_of, tag if found else ALL)).get(tag)
        return row_of(tag, found, figure, self._watch.days.get(tag)), error

    def _figures_of(self, name: str) -> dict[str, Figure]:
        return by_tag(one.figures for one in self._told((name,)))

    async def _tag(self, tag: str) -> tuple[Tag | None, AllocatorError | None]:
        error = self.tags.failing(AWAY_FOR)
        if error is None:
            try:
                async with asyncio.timeout(PATIENCE):
                    return await self._sequences.get(tag), None
            except TimeoutError:
                error = DatabaseUnavailable("the databases do not answer")
            except DatabaseUnavailable as away:
                error = away
        known = (await self.tags.get(0.0)).value or {}
        return known.get(tag), error


def by_tag(parts: Iterable[Mapping[str, Figure]]) -> dict[str, Figure]:
    """The figures of all workers, those of a tag together."""
    first, *more = parts
    if not more:
        return dict(first)
    names = first.keys() | {name for one in more for name in one}
    return {name: sum_of(one[name] for one in (first, *more) if name in one) for name in names}
