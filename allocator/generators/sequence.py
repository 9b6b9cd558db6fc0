"""The handle of one tag: its ids from memory, and blocks beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from operator import length_hint
from time import monotonic
from typing import NoReturn

from allocator.errors import AllocatorError, DatabaseUnavailable, MaxValueWentBack, UnknownTag
from allocator.generators.supply import Supply, Terms
from allocator.runtime import forks
from allocator.runtime.iterators import take
from allocator.runtime.threads import Waits, result_of, wait_for
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.argument_checks import check_count, check_reserve
from allocator.schemes.shared.residues import Seen, merged, residue_of
from allocator.schemes.tag import Tag


class Sequence(Supply):
    """The handle of one tag, from `Allocator.sequence`.

    Safe to use from several threads; the ids that one thread draws increase, in a fleet those of each slot.
    """

    __slots__ = ("_opened", "_serving", "_template", "tag")

    def __init__(self, template: Tag, terms: Terms, serving: dict[str, Iterator[int]]) -> None:
        self.tag = template.name
        self._template, self._serving = template, serving
        super().__init__(terms)

    def next_id(self) -> int:
        """The next id. Raises the errors of `Allocator.next_id`."""
        try:
            return next(self._values)
        except StopIteration:
            return wait_for(self._attempts())

    def __call__(self, *_: object) -> NoReturn:
        """Raise a `TypeError`: SQLAlchemy takes a default that cannot be called for a value, and sends it."""
        raise TypeError(
            f"a sequence is not the default of a column: write primary_key(ids, tag={self.tag!r}), or "
            f"default=ids.sequence({self.tag!r}).next_id of an Allocator"
        )

    def next_ids(self, count: int) -> list[int]:
        """The next 0 to 10000 ids, within one `timeout`.

        Raises the errors of `Allocator.next_id`, and `InvalidCount`.

        If an error occurs midway, the ids drawn before it are burnt.
        """
        ids = list(take(self._values, check_count(count)))
        return ids if len(ids) == count else wait_for(self._completed(ids, count))

    def reserve(self, count: int) -> range:
        """One block of 1 to 10**13 ids, claimed by this call. In a fleet, its step is the number of slots.

        Raises the errors of `Allocator.next_id`, and `InvalidCount`, also where fewer are left.
        """
        return wait_for(self._claimed(count, {}, True))

    def __iter__(self) -> Iterator[int]:
        """Endless ids: `for id in sequence`.

        Several loops may run at once, each with an iterator of its own thread. An error ends the iterator.
        """
        while True:
            for value in self._values:  # noqa: UP028 - a tenth faster than `yield from`
                yield value
            yield wait_for(self._attempts())

    def __repr__(self) -> str:
        return f"<Sequence {self.tag}>"

    def held(self) -> int:
        """How many ids can be served without the database."""
        with self._lock:
            return length_hint(self._values) + int(self._core.held)

    @property
    def _name(self) -> str:
        return f"tag {self.tag!r}"

    def _new_core(self) -> Segments:
        self._opened = False
        return Segments(self._terms.runway, self._terms.lost_after)

    def _serve(self, values: Iterable[int]) -> int | None:
        first = super()._serve(values)
        self._serving[self.tag] = self._values
        return first

    def _claim(self, claim: Claim) -> range:
        if not self._opened:
            self._open()
        try:
            return self._terms.backend.claim_segment(self.tag, claim.size, claim.seen)
        except UnknownTag:  # somebody has deleted it
            self._opened = False
            raise

    def _open(self) -> None:
        """Fetch the tag's settings, once; create its row if the allocator may."""
        backend, create = self._terms.backend, self._terms.create_missing
        try:
            tag = backend.open_segment(self._template, create)
        except UnknownTag:
            if create:
                raise  # a service that creates no more tags says so
            tag = backend.tags(self._template).get(self.tag)  # whose error names similar tags
        with self._lock:
            self._core.configure(tag.step, tag.max_step)
        self._opened = True

    def _claimed(self, size: int, seen: Seen, exact: bool) -> Waits[range]:
        """Claim one block, above the ids `seen` of a client process too; see `ServiceAllocator.claim`."""
        size = check_reserve(size) if exact else size
        forks.enter(self)
        start = partial(self._terms.background.submit, self._claim_beside, size, seen, exact)
        return result_of(start, self._terms.background, self._terms.timeout, self._overdue)

    def _claim_beside(self, count: int, others: Seen, exact: bool) -> range:
        core = self._core
        with self._lock:
            pause = core.pace.wait(monotonic())
        if pause and pause.error:
            error = pause.error.again()
            if isinstance(error, DatabaseUnavailable):
                error.pause = pause.seconds
            raise error
        try:
            if not self._opened:
                self._open()
            with self._lock:
                if core.stopped:
                    raise core.stopped.again()
                size = count if exact else core.block_size(count)
                seen = merged(core.seen, others)
            block = self._terms.backend.claim_segment(self.tag, size, seen, exact=exact)
        except AllocatorError as error:
            if isinstance(error, MaxValueWentBack) and others:
                raise  # the lost ids are a client's; if ours are lost too, our next claim finds out
            with self._lock:
                core.refused(error, monotonic())
                self._clear_if_stopped()
            raise
        with self._lock:
            core.record_seen(residue_of(block), block[-1])
        return block

    def _after_fork(self) -> None:
        """Keep only the greatest ids seen."""
        seen = self._core.seen
        self._reset()
        self._core.seen = seen
