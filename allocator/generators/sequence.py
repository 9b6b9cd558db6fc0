"""The ids of one tag, and the tags that an allocator serves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import length_hint
from time import monotonic
from typing import NoReturn

from allocator.errors import AllocatorError, DatabaseUnavailable, MaxValueWentBack, UnknownTag
from allocator.generators.backend_protocol import Backend
from allocator.generators.supply import LOST_AFTER, Supply, Terms
from allocator.runtime import forks
from allocator.runtime.iterators import take
from allocator.runtime.thread_pool import Background, Work, check_entry, result_of
from allocator.runtime.waiting import Waits, wait_for
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.argument_checks import check_count, check_reserve, check_tag
from allocator.schemes.shared.residues import Seen, merged
from allocator.schemes.shared.retry_pace import Wait
from allocator.schemes.tag import Tag


class Sequence(Supply):
    """The handle of one tag, from `Allocator.sequence`.

    Safe to use from several threads; the ids that one thread draws increase.
    """

    __slots__ = ("_opened", "_sequences", "_template", "tag")

    _core: Segments

    def __init__(
        self,
        template: Tag,
        backend: Backend,
        background: Background,
        terms: Terms,
        sequences: Sequences,
        owner: object = None,
    ) -> None:
        self.tag = template.name
        self._template = template
        self._sequences = sequences
        super().__init__(backend, background, terms, owner)

    def next_id(self) -> int:
        """The next id. Raises the errors of `Allocator.next_id`."""
        try:
            return next(self._values)
        except StopIteration:
            return self._next()

    def __call__(self, *_: object) -> NoReturn:
        """Raise a `TypeError`: SQLAlchemy takes a default that cannot be called for a value, and sends it."""
        raise TypeError(
            f"a sequence is not the default of a column: write primary_key(ids, tag={self.tag!r}), or "
            f"default=ids.sequence({self.tag!r}).next_id of an Allocator"
        )

    def next_ids(self, count: int) -> list[int]:
        """The next 0 to 10000 ids, increasing, within one `timeout`.

        Raises the errors of `Allocator.next_id`, and `InvalidCount`.

        If an error occurs midway, the ids drawn before it are burnt.
        """
        ids = list(take(self._values, check_count(count)))
        return ids if len(ids) == count else wait_for(self._completed(ids, count))

    def reserve(self, count: int) -> range:
        """One block of 1 to 10**13 ids, claimed by this call. In a fleet, its step is the number of slots."""
        return wait_for(self._claimed(count, {}, True))

    def __iter__(self) -> Iterator[int]:
        """Endless ids: `for id in sequence`.

        Several loops may run at once, each with an iterator of its own thread. An error ends the iterator.
        """
        while True:
            for value in self._values:  # noqa: UP028 - a tenth faster than `yield from`
                yield value
            yield self._next()

    def __repr__(self) -> str:
        return f"<Sequence {self.tag}>"

    def _new_core(self) -> Segments:
        return Segments(self._terms.runway, LOST_AFTER * self._terms.timeout)

    def _name(self) -> str:
        return f"tag {self.tag!r}"

    def _publish(self, values: Iterable[int]) -> int | None:
        first = self._serve(values)
        self._sequences.serving[self.tag] = self._values
        return first

    def _more(self, now: float) -> int | None:
        if self._core.stopped:
            raise self._core.stopped.again()
        piece = self._core.take()
        return self._publish(piece) if piece else None

    def _want(self, now: float, missing: int) -> Claim | Wait | None:
        return self._core.want(now, missing)

    def _work(self, claim: Claim) -> range:
        self._open()
        with self._lock:
            self._core.resize(claim)
        return self._backend.claim_segment(self.tag, claim.size, claim.seen)

    def _open(self) -> None:
        """Fetch the tag's settings once; create its row if the allocator may."""
        if self._opened:
            return
        try:
            tag = self._backend.open_segment(self._template, self._terms.create_missing)
        except UnknownTag:
            if self._terms.create_missing:
                raise  # a service that creates no more tags says so
            tag = self._backend.tags(self._template).get(self.tag)  # whose error names similar tags
        self._configure(tag)

    def _configure(self, tag: Tag) -> None:
        with self._lock:
            self._core.configure(tag.step, tag.max_step)
        self._opened = True

    def _granted(self, claim: Claim, result: range, now: float) -> None:
        self._core.committed(claim, result, now)
        self._clear_if_stopped()

    def _refused(self, claim: Claim, error: AllocatorError, now: float) -> None:
        super()._refused(claim, error, now)
        if isinstance(error, UnknownTag):
            self._opened = False
        self._clear_if_stopped()

    def _clear_if_stopped(self) -> None:
        if self._core.stopped:
            self._publish(())

    def _claimed(self, size: int, seen: Seen, exact: bool) -> Waits[range]:
        """Claim one block, above the ids `seen` of a client process too; see `ServiceAllocator.claim`."""
        start = partial(self._start_claim, size, seen, exact)
        return result_of(start, self._background, self._terms.timeout, self._overdue)

    def _start_claim(self, size: int, seen: Seen, exact: bool) -> Work[range]:
        if exact:
            size = check_reserve(size)
        self._check_entry()
        return self._background.submit(self._claim_beside, size, seen, exact)

    def _claim_beside(self, count: int, others: Seen, exact: bool) -> range:
        with self._lock:
            pause = self._core.pace.wait(monotonic())
        if pause and pause.error:
            error = pause.error.again()
            if isinstance(error, DatabaseUnavailable):
                error.pause = pause.seconds
            raise error
        try:
            self._open()
            with self._lock:
                if self._core.stopped:
                    raise self._core.stopped.again()
                size = count if exact else self._core.block_size(count)
                seen = merged(self._core.seen, others)
            block = self._backend.claim_segment(self.tag, size, seen, exact=exact)
        except AllocatorError as error:
            if isinstance(error, MaxValueWentBack) and others:
                raise  # the lost ids are a client's; if ours are lost too, our next claim finds out
            with self._lock:
                self._core.refused(error, monotonic())
                self._clear_if_stopped()
            raise
        with self._lock:
            self._core.record_seen(block)
        return block

    def held(self) -> int:
        """How many ids can be served without the database."""
        with self._lock:
            return length_hint(self._values) + self._core.held

    def _reset(self) -> None:
        self._opened = False
        super()._reset()

    def _renew(self) -> None:
        """Reset in a forked child, and keep only the greatest ids seen."""
        seen = self._core.seen
        super()._renew()
        self._core.seen = seen


class Sequences(dict[str, Sequence]):
    """The sequences of an allocator, by tag. `serving` holds the iterator of each tag, the fast path to an id."""

    def __init__(self, make: Callable[[str], Sequence]) -> None:
        super().__init__()
        self.serving: dict[str, Iterator[int]] = {}
        self._make = make
        self.renew()

    def renew(self) -> None:
        self._lock = threading.RLock()

    def __missing__(self, tag: str) -> Sequence:
        name = check_tag(tag)
        # Before the lock: a thread of the parent may have held it during a fork, and the reset replaces it.
        forks.catch_up()
        check_entry(self._lock, f"tag {name!r}")  # a handler's second object would be missed by `close` and by forks
        with self._lock:
            if name not in self:
                self[name] = self._make(name)
            return self[name]
