"""The supply of one tag."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from operator import length_hint
from time import monotonic
from typing import Any, NamedTuple

from allocator.errors import AllocatorError, DatabaseUnavailable, MaxValueWentBack, UnknownTag
from allocator.generators.backend_protocol import Backend
from allocator.generators.supply import LOST_AFTER, Ended, Supply, Terms
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import check_reserve
from allocator.schemes.residues import Seen, merged
from allocator.schemes.retry import Pace, Wait
from allocator.schemes.segment import Claim, Segments
from allocator.schemes.tag import Tag


class Refill(NamedTuple):
    """A claim under way, of the supply of one tag."""

    supply: SegmentSupply
    claim: Claim
    ended: Ended
    in_advance: bool
    left_out: int = 0
    """How often others were claimed and this one was not."""

    def sized(self) -> Claim:
        return self.supply._sized(self.claim)

    def alone(self) -> None:
        self.supply._run(self.claim, self.ended, self.in_advance)

    def brought(self, segment: range) -> None:
        self.supply._brought(self.claim, segment, self.ended, self.in_advance)

    def failed(self, error: BaseException) -> None:
        self.supply._end(self.claim, self.ended, error, self.in_advance)


class SegmentSupply(Supply):
    """Drives `Segments`. `serving` maps the tag to what is being served, the shortest way from a tag to an id.

    refills: takes what is to be claimed; without it, each claim is for itself.
    """

    __slots__ = ("_backend", "_core", "_refills", "_serving", "opened", "tag", "template")

    def __init__(
        self,
        template: Tag,
        backend: Backend,
        background: Background,
        terms: Terms,
        serving: dict[str, Iterator[int]],
        owner: object = None,
        refills: Callable[[Refill], None] | None = None,
    ) -> None:
        self.tag = template.name
        self.template = template
        self._refills = refills
        self._backend = backend
        self._serving = serving
        self.opened = False
        self._core = Segments(terms.runway, LOST_AFTER * terms.timeout)
        super().__init__(background, terms, owner)

    @property
    def _pace(self) -> Pace[Any]:
        return self._core.pace

    def _name(self) -> str:
        return f"tag {self.tag!r}"

    def _publish(self, values: Iterable[int]) -> int | None:
        first = self._serve(values)
        self._serving[self.tag] = self._values
        return first

    def _more(self, now: float) -> int | None:
        try:
            return next(self._values)  # another thread may have brought a piece meanwhile
        except StopIteration:
            piece = self._core.take()
            return self._publish(piece) if piece else None

    def _want(self, now: float) -> Claim | Wait | None:
        return self._core.want(now)

    def _stopped(self) -> AllocatorError | None:
        return self._core.stopped

    def _submit(self, request: Claim, ended: Ended, in_advance: bool) -> None:
        if self._refills is None:
            super()._submit(request, ended, in_advance)
        else:
            self._refills(Refill(self, request, ended, in_advance))

    def _work(self, request: Claim) -> range:
        self._open()
        return self._backend.claim_segment(self.tag, self._sized(request).size, request.seen)

    def _sized(self, request: Claim) -> Claim:
        with self._lock:
            self._core.resize(request)
        return request

    def _open(self) -> None:
        """Once: read the tag's settings, and make its row if that may be."""
        if not self.opened:
            self.opened_as(self._backend.open_segment(self.template, self.may_create))

    @property
    def may_create(self) -> bool:
        return self._terms.create_missing

    def opened_as(self, tag: Tag) -> None:
        with self._lock:
            self._core.configure(tag.step, tag.max_step)
        self.opened = True

    def _granted(self, request: Claim, result: range, now: float) -> None:
        self._core.committed(request, result, now)
        self._stop_serving_what_went_back()

    def _refused(self, request: Claim, error: AllocatorError, now: float) -> None:
        self._core.failed(request, error, now)
        if isinstance(error, UnknownTag):
            self.opened = False
        self._stop_serving_what_went_back()

    def _stop_serving_what_went_back(self) -> None:
        if self._core.stopped:
            self._publish(())

    # -- blocks beside the segments

    def _start_reserve(self, count: int) -> Future[range]:
        check_reserve(count)
        self._check_entry()
        return self._background.submit(self._claim_beside, count, {}, True)

    def _start_claim(self, size: int | None, seen: Seen, exact: bool) -> Future[range]:
        """For another process, which has `seen` ids too: a segment of its size, within the bounds of the tag."""
        if exact:
            check_reserve(size)
        return self._background.submit(self._claim_beside, size, seen, exact)

    def _claim_beside(self, count: int | None, others: Seen, exact: bool) -> range:
        with self._lock:
            pause = self._core.pace.wait(monotonic())
        if pause and pause.error and not isinstance(pause.error, DatabaseUnavailable):
            raise pause.error.again()
        if pause:
            self._background.closed.wait(pause.seconds)
        try:
            self._open()
            with self._lock:
                if self._core.stopped:
                    raise self._core.stopped.again()
                core = self._core
                size = count if count and exact else min(count or core.step, max(core.step, core.max_step))
                seen = merged(core.seen, others)
            block = self._backend.claim_segment(self.tag, size, seen, exact=exact)
        except AllocatorError as error:
            if isinstance(error, MaxValueWentBack) and others:
                raise  # as another process has it; whether it went back for us too shows at our next claim
            with self._lock:
                self._core.refused(error, monotonic())
                self._stop_serving_what_went_back()
            raise
        with self._lock:
            self._core.saw(block)
        return block

    def _in_memory(self) -> int:
        """How many ids can be served without the database."""
        with self._lock:
            return length_hint(self._values) + self._core.held

    def _trouble(self) -> AllocatorError | None:
        with self._lock:
            return self._core.pace.trouble(monotonic())

    # -- endings

    def _retire(self) -> None:
        self._serving.pop(self.tag, None)
        super()._retire()

    def _renew(self) -> None:
        """In a forked child: only the watermark is still true."""
        seen = self._core.seen
        self._core = Segments(self._terms.runway, LOST_AFTER * self._terms.timeout)
        self._core.seen = seen
        self.opened = False
        self._serving.pop(self.tag, None)
        super()._renew()
