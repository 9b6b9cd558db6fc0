"""A simulation: processes with the real rules of segments, and a database that is a table of durations.

Time is a number and events are calls in a heap, so a minute of ten thousand processes takes seconds. The rules are
those of `schemes/segment_refill.py`. Events replace the threads of `generators/supply.py` and `generators/batching.py`.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from allocator.errors import DatabaseUnavailable
from allocator.generators.batching import LONGEST, MAX_BATCH, PATIENCE, TRIES, TURNS
from allocator.runtime.thread_pool import THREADS
from allocator.schemes.segment_refill import Claim, Segments
from allocator.schemes.shared.retry_pace import Wait

AWAY = DatabaseUnavailable("away")
LOST_AFTER = 60.0


@dataclass(frozen=True)
class Times:
    """Durations of a database in seconds, measured or assumed.

    latency: of claims of one row on an idle server; each claim takes a random one.
    statement, row: work of the server for a statement of one row, and for each further row.
    read: work of the server for each row that a process reads before its first claim of the tag.
    refusal: time until a claim fails while the database is away.
    """

    latency: Sequence[float]
    statement: float
    row: float
    read: float = 0.0
    refusal: float = 0.001


def popular(tags: int, each: float) -> list[float]:
    """Rates of tags in one process, by Zipf: the n-th tag has 1/n of the rate of the first."""
    weights = [1 / rank for rank in range(1, tags + 1)]
    return [each * weight / sum(weights) for weight in weights]


@dataclass(frozen=True)
class Load:
    """`rates`: ids per second of each tag in each process. `factors`: (start, factor) pairs that multiply them."""

    rates: Sequence[float]
    factors: Sequence[tuple[float, float]] = ((0.0, 1.0),)
    away: tuple[float, float] = (float("inf"), float("inf"))
    begin: float = 1.0
    """Every process uses all its tags for the first time within this many seconds."""

    def used_up(self, now: float, rate: float, ids: int) -> float:
        """The time when this many ids will be drawn."""
        left = ids / rate
        ends = [*(moment for moment, _ in self.factors[1:]), float("inf")]
        for (_, factor), end in zip(self.factors, ends, strict=True):
            if now >= end:
                continue
            if left <= (end - now) * factor:
                return now + left / factor
            left -= (end - now) * factor
            now = end
        raise AssertionError("the last factor has no end")


@dataclass
class Seen:
    """Events per second, and each wait of a caller in seconds."""

    seconds: int
    claims: list[int] = field(init=False)
    statements: list[int] = field(init=False)
    failures: list[int] = field(init=False)
    burnt: list[int] = field(init=False)
    waits: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("claims", "statements", "failures", "burnt"):
            setattr(self, name, [0] * (self.seconds + 1))


class Process:
    """A process: claims to make, each with the number of times it was skipped, and running statements."""

    __slots__ = ("is_awaited", "lost", "skipped", "turns", "under_way", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Asked] = deque()
        self.skipped: list[Asked] = []
        """Claims that pause, until all of them are tried again."""
        self.turns = TURNS
        self.is_awaited, self.lost = False, 1
        self.under_way = 0


class Pair:
    """One tag in one process."""

    __slots__ = ("core", "due", "is_read", "process", "rate", "stalled_at", "tag")

    def __init__(self, process: Process, tag: int, rate: float, core: Segments) -> None:
        self.process = process
        self.tag = tag
        self.rate = rate
        self.core = core
        self.is_read = False
        self.stalled_at: float | None = None
        self.due = 0
        """Number of the pair's valid event; events planned earlier are stale."""


Asked = tuple[Pair, Claim, int]


class World:
    """`weight`: the number of real processes that each simulated one represents."""

    def __init__(
        self, processes: int, load: Load, times: Times, seconds: int, *, weight: float = 1.0, seed: int = 1
    ) -> None:
        self.load, self.times, self.weight = load, times, weight
        self.now = 0.0
        self.seen = Seen(seconds)
        self.pairs: list[Pair] = []
        self._random = random.Random(seed)
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self._free_at = 0.0
        self._claimed = [0] * len(load.rates)
        self._row_free_at = [0.0] * len(load.rates)
        for _ in range(processes):
            process = Process()
            for tag, rate in enumerate(load.rates):
                pair = Pair(process, tag, rate, Segments(60.0, LOST_AFTER))
                self.pairs.append(pair)
                self._again(pair, self._random.random() * load.begin)

    def _at(self, moment: float, call: Callable[..., None], *args: Any) -> None:
        heapq.heappush(self._heap, (moment, next(self._order), call, args))

    def run(self, until: float) -> None:
        while self._heap and self._heap[0][0] <= until:
            self.now, _, call, args = heapq.heappop(self._heap)
            call(*args)
        self.now = until

    # -- a process

    def _again(self, pair: Pair, moment: float) -> None:
        pair.due += 1
        self._at(moment, self._due, pair, pair.due)

    def _due(self, pair: Pair, due: int) -> None:
        if due == pair.due:
            self._drain(pair)

    def _drain(self, pair: Pair) -> None:
        """Handle a pair that has used up its segment, or that retries."""
        piece, want = pair.core.take(), pair.core.want(self.now)
        if isinstance(want, Claim):
            pair.process.waiting.append((pair, want, 0))
            self._start(pair.process)
        if piece:
            if pair.stalled_at is not None:
                self.seen.waits.append((pair.stalled_at, self.now - pair.stalled_at))
                pair.stalled_at = None
            self._again(pair, self.load.used_up(self.now, pair.rate, len(piece)))
            return
        if pair.stalled_at is None:
            pair.stalled_at = self.now
        if isinstance(want, Wait):
            self._again(pair, self.now + want.seconds)

    def _start(self, process: Process) -> None:
        """Let free threads claim what waits, where a turn is free."""
        while process.waiting and process.turns and process.under_way < THREADS:
            process.turns -= 1
            process.lost = 1
            self._gather(process)
        if process.waiting and not process.is_awaited:
            process.is_awaited = True
            self._at(self.now + PATIENCE * process.lost, self._overdue, process)

    def _overdue(self, process: Process) -> None:
        process.is_awaited = False
        if process.waiting and process.under_way < THREADS:
            process.lost = min(2 * process.lost, LONGEST)
            self._gather(process)
        self._start(process)

    def _gather(self, process: Process) -> None:
        batch = [process.waiting.popleft()]
        while process.waiting and len(batch) < MAX_BATCH and batch[0][2] < TRIES:
            batch.append(process.waiting.popleft())
        self._ask(process, batch)

    def _pause(self, process: Process, skipped: list[Asked], took: float) -> None:
        is_first = not process.skipped
        process.skipped += skipped
        if is_first:
            tried = min(left_out for _, _, left_out in skipped)
            self._at(self.now + min(took * tried, PATIENCE), self._again_together, process)

    def _again_together(self, process: Process) -> None:
        process.waiting.extend(process.skipped)
        process.skipped.clear()
        self._start(process)

    # -- the database

    def _ask(self, process: Process, batch: list[Asked]) -> None:
        process.under_way += 1
        begin, end = self.load.away
        if begin <= self.now < end:
            self.seen.failures[int(self.now)] += len(batch)
            self._at(self.now + self.times.refusal, self._failed, process, batch)
            return
        starts = max(self.now, self._free_at)
        locked = [one for one in batch if len(batch) > 1 and self._row_free_at[one[0].tag] > starts]
        claimed = [one for one in batch if one not in locked] if locked else batch
        more = self.times.row * (len(claimed) - 1) + self.times.read * sum(not one[0].is_read for one in batch)
        for pair, _, _ in batch:
            pair.is_read = True
        took = self._random.choice(self.times.latency) + more
        self._free_at = starts + (self.times.statement + more) * self.weight
        if len(batch) == 1:
            starts = max(starts, self._row_free_at[batch[0][0].tag])
        for pair, _, _ in claimed:
            self._row_free_at[pair.tag] = starts + took * self.weight
        second = min(int(starts), self.seen.seconds)
        self.seen.statements[second] += 1
        self.seen.claims[second] += len(claimed)
        if self.now < begin <= starts + took:
            self._at(begin, self._cut, process, batch)  # the response is lost, so the claimed ids are skipped
        else:
            self._at(starts + took, self._committed, process, claimed, locked, starts + took - self.now)

    def _committed(self, process: Process, batch: list[Asked], locked: list[Asked], took: float) -> None:
        process.under_way -= 1
        process.turns = min(TURNS, process.turns + 1)
        skipped = [(pair, claim, left_out + 1) for pair, claim, left_out in locked]
        process.waiting.extendleft(one for one in skipped if one[2] >= TRIES)
        if again := [one for one in skipped if one[2] < TRIES]:
            self._pause(process, again, took)
        for pair, claim, _ in batch:
            first = self._claimed[pair.tag] + 1
            self._claimed[pair.tag] += claim.size
            pair.core.committed(claim, range(first, first + claim.size), self.now)
            if pair.stalled_at is not None:
                self._drain(pair)
        self._start(process)

    def _cut(self, process: Process, batch: list[Asked]) -> None:
        for _, claim, _ in batch:
            self.seen.burnt[int(self.now)] += claim.size
        self._failed(process, batch)

    def _failed(self, process: Process, batch: list[Asked]) -> None:
        process.under_way -= 1
        process.turns = min(TURNS, process.turns + 1)
        for pair, claim, _ in batch:
            pair.core.failed(claim, AWAY, self.now)
            if pair.stalled_at is not None:
                self._drain(pair)
        self._start(process)

    @property
    def in_memory(self) -> int:
        """Ids that would become gaps if all processes ended now; counts segments in use as a whole."""
        return sum(pair.core.held + pair.core._piece for pair in self.pairs)
