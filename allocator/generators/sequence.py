"""The ids of one tag, blocking; and the ways to wait that all blocking calls share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import islice
from time import monotonic
from typing import Any, TypeVar

from allocator.errors import AllocatorError
from allocator.generators.column_default import check_each_row, check_not_held, of_a_row
from allocator.generators.segment_supply import SegmentSupply
from allocator.generators.supply import Ended, Supply
from allocator.runtime.forks import catch_up
from allocator.runtime.waiting import pause, result_of
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import check_count
from allocator.schemes.retry import Wait

T = TypeVar("T")

WAIT_SLICE = 1.0
"""Seconds after which a waiting call looks round: a signal may come just before it waits, and is seen after it."""


class Sequence(SegmentSupply):
    """The ids of one tag, for a caller that uses it often. Made by `Allocator.sequence`.

    Safe to use from several threads; each thread sees increasing ids.
    """

    __slots__ = ()

    def next_id(self) -> int:
        """The next id. Errors as of `Allocator.next_id`."""
        try:
            return next(self._values)
        except StopIteration:
            return refill(self)

    def __call__(self, context: Any = None, /) -> int:
        """The next id, so that a sequence can be the default of a column: `Column(default=ids.sequence("order"))`.

        SQLAlchemy calls it with the context of the statement, once for each row. Errors as of `next_id`, and
        `InvalidSetting` for an UPDATE and an INSERT from a SELECT; under an `AsyncSession` what would block is awaited.
        """
        if context is None:
            return self.next_id()
        try:
            compiled = context.compiled
            if compiled.statement.select is None and not compiled.update_prefetch and not compiled.ctes:
                return next(self._values)
        except (AttributeError, StopIteration):  # or a context of another kind
            pass
        check_each_row(context, self._name())
        return self.next_in(context.root_connection)

    @property
    def __func__(self) -> Callable[[object], int]:
        """Where SQLAlchemy looks for how many arguments a default takes: it would not pass its context otherwise."""
        return of_a_row

    def next_in(self, connection: Any) -> int:
        """The next id, for a row that is written by this connection of SQLAlchemy's."""
        try:
            return next(self._values)
        except StopIteration:
            check_not_held(connection, getattr(self._backend, "files", ()), self._name())
            return refill(self)

    def next_ids(self, count: int) -> list[int]:
        """The next 1 to 10000 ids, increasing. Errors as of `Allocator.next_id`, and `InvalidCount`.

        When an error comes in the middle, the ids drawn before it are burnt.
        """
        check_count(count)
        core = self._core
        ids = list(islice(self._values, count))
        while len(ids) < count:
            ids.append(refill(self))
            if core is not self._core:  # forked while it waited, as in a signal handler: the ids are the parent's too
                return self.next_ids(count)
            ids += islice(self._values, count - len(ids))
        return ids

    def reserve(self, count: int) -> range:
        """One block of 1 to 10 million ids, claimed by this call: contiguous, or with shards of their step."""
        return drawn(lambda: self._start_reserve(count), self._background, self._terms.timeout, self._overdue)

    def __iter__(self) -> Iterator[int]:
        """Ids without end: `for id in sequence`.

        Several loops may run at once; one iterator is for one thread, and as of any generator an error is its end.
        """
        while True:
            for value in self._values:  # noqa: UP028 - a tenth faster than `yield from`
                yield value
            yield refill(self)

    def __repr__(self) -> str:
        return f"<Sequence {self.tag}>"


def refill(supply: Supply) -> int:
    """The next id after what was being served: from memory, or else from the database within the timeout."""
    end = monotonic() + supply._terms.timeout
    while True:
        step = supply._advance()
        if isinstance(step, int):
            return step
        left = end - monotonic()
        if left <= 0:
            raise supply._overdue(step)
        if isinstance(step, Wait):
            pause(supply._background.closed, min(step.seconds, left))
        else:
            supply._raise_unless_passing(outcome(step, min(left, WAIT_SLICE)))


def outcome(ended: Ended, seconds: float) -> AllocatorError | None:
    try:
        return result_of(ended, seconds)
    except TimeoutError:
        return None


def drawn(
    start: Callable[[], Future[T]], background: Background, seconds: float, overdue: Callable[[], AllocatorError]
) -> T:
    """What a thread brings within so many seconds; what it brings later is burnt."""
    catch_up()
    while True:
        process, future = background.closed, start()
        try:
            found = result_of(future, seconds)
        except TimeoutError:
            future.cancel()
            error = overdue()
            raise error from error.__cause__
        if process is background.closed:
            return found
        # Forked while it waited, as in a signal handler: what came is the parent's.
