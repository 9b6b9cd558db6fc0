"""The supply of one tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from operator import length_hint
from time import monotonic
from typing import Protocol

from allocator.background import Background
from allocator.errors import AllocatorError, MaxValueWentBack, UnknownTag
from allocator.schemes.lane import Seen, merged
from allocator.schemes.limits import check_reserve
from allocator.schemes.pace import Wait
from allocator.schemes.segment import Claim, Segments
from allocator.schemes.tag import Tag
from allocator.supply import LOST_AFTER, Supply, Terms


class Source(Protocol):
    """Where segments come from. Each call may be run again at any time; what it claimed is burnt then."""

    def open_segment(self, template: Tag, create: bool) -> Tag: ...

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range: ...


class SegmentSupply(Supply):
    """Drives `Segments`. `serving` maps the tag to what is being served, the shortest way from a tag to an id."""

    __slots__ = ("_core", "_opened", "_serving", "_source", "_template", "tag")

    def __init__(
        self,
        template: Tag,
        source: Source,
        background: Background,
        terms: Terms,
        serving: dict[str, Iterator[int]],
        owner: object = None,
    ) -> None:
        self.tag = template.name
        self._template = template
        self._source = source
        self._serving = serving
        self._opened = False
        self._core = Segments(terms.runway, LOST_AFTER * terms.timeout)
        super().__init__(background, terms, owner)

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

    def _work(self, request: Claim) -> range:
        self._open()
        with self._lock:
            self._core.resize(request)
        return self._source.claim_segment(self.tag, request.size, request.seen)

    def _open(self) -> None:
        """Once: read the tag's settings, and make its row if that may be."""
        if self._opened:
            return
        tag = self._source.open_segment(self._template, self._terms.create_missing)
        with self._lock:
            self._core.configure(tag.step, tag.max_step)
        self._opened = True

    def _granted(self, request: Claim, result: range, now: float) -> None:
        self._core.committed(request, result, now)
        self._stop_serving_what_went_back()

    def _refused(self, request: Claim, error: AllocatorError, now: float) -> None:
        self._core.failed(request, error, now)
        if isinstance(error, UnknownTag):
            self._opened = False
        self._stop_serving_what_went_back()

    def _stop_serving_what_went_back(self) -> None:
        if self._core.stopped:
            self._publish(())

    # -- blocks beside the segments

    def _start_reserve(self, count: int) -> Future[range]:
        check_reserve(count)
        return self._background.submit(self._claim_beside, count, {}, True)

    def _start_claim(self, size: int | None, seen: Seen, exact: bool) -> Future[range]:
        """For another process, which has `seen` ids too: a segment of its size, within the bounds of the tag."""
        if exact:
            check_reserve(size)
        return self._background.submit(self._claim_beside, size, seen, exact)

    def _claim_beside(self, count: int | None, others: Seen, exact: bool) -> range:
        with self._lock:
            pause = self._core.pace.wait(monotonic())
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
            block = self._source.claim_segment(self.tag, size, seen, exact=exact)
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
        self._opened = False
        self._serving.pop(self.tag, None)
        super()._renew()
