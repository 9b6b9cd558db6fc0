"""An allocator that tells how long each word with the database took, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

from allocator.errors import AllocatorError
from allocator.fleet.tags import Tags
from allocator.generators.backend import Backend
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag
from allocator.sync import Allocator

T = TypeVar("T")

Told = Callable[[str, str, float, Collection[str]], None]
"""What was asked for, "ok" or the name of the error, the seconds it took, and the tags that were brought by it.

Called on the threads of the claims."""


class Observed:
    """A backend, looked at."""

    def __init__(self, backend: Backend, told: Told) -> None:
        self.backend = backend
        self._told = told
        self.fleet = getattr(backend, "fleet", None)
        self.close = backend.close
        self.abandon = backend.abandon

    @property
    def shown(self) -> str:
        return self.backend.shown

    def _timed(self, what: str, work: Callable[[], T], brought: Callable[[T], Collection[str]] | None = None) -> T:
        began, outcome = perf_counter(), "ok"
        tags: Collection[str] = ()
        try:
            result = work()
            tags = brought(result) if brought else ()
            return result
        except AllocatorError as error:
            outcome = type(error).__name__
            raise
        finally:
            self._told(what, outcome, perf_counter() - began, tags)

    def open_segment(self, template: Tag, create: bool) -> Tag:
        return self._timed("tag", partial(self.backend.open_segment, template, create))

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        claim = partial(self.backend.claim_segment, name, size, seen, exact=exact)
        return self._timed("segment", claim, lambda _: (name,))

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        return self._timed("tag", partial(self.backend.open_segments, templates, create))

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return self._timed("segment", partial(self.backend.claim_segments, claims), dict.keys)

    def register_node(self) -> int:
        return self._timed("node", self.backend.register_node)

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        return self._timed("lease", partial(self.backend.lease_worker, claim, layout, epoch))

    def ticket(self, kind: str, end: float) -> int:
        return self._timed("ticket", partial(self.backend.ticket, kind, end))

    def tags(self, template: Tag) -> Tags:
        tags: Tags = self.backend.tags(template)
        return tags


class ObservedAllocator(Allocator):
    """`told` is called for every word with the database."""

    def __init__(self, database: Any = None, *, told: Told, **settings: Any) -> None:
        self._told = told
        super().__init__(database, **settings)

    def _watched(self, backend: Backend) -> Backend:
        return Observed(backend, self._told)
