"""A process: the real allocator, its clocks, and threads that draw ids from it until it ends.

Single ids, several, loops, blocks, meteors and snowflakes; after the faults every process must give an id of every tag,
or say for good why it does not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseUnavailable,
    Exhausted,
    MaxValueWentBack,
    NodeIdsExhausted,
    NotCopyable,
    ServerReplaced,
    UnknownTag,
)
from allocator.generators.snowflake import Snowflake
from allocator.schemes.formats.bit_layout import Layout
from simulation.account import ALONE
from simulation.dialect import Surprise
from simulation.faces import ObservedAllocator
from simulation.scheduler import Clock, Killed, Task, Time, pause
from simulation.seeds import Violation

if TYPE_CHECKING:
    from simulation.world import World

ALONE_LAYOUT = Layout(sign=1, timestamp=43, datacenter=12, worker=4, sequence=4)
SLACK = 0.5
"""Seconds beyond its deadline in which a call must have ended: threads are put off here and there."""

ENOUGH = 3
"""So many calls of a thread find their allocator closed."""

STAMP: dict[str, Callable[[Process], int]] = {
    "snowflake": lambda process: process.ids.snowflake(),
    "meteor": lambda process: process.ids.meteor(),
    ALONE: lambda process: process.alone_id(),
}
STAMPS = ("snowflake", "snowflake", "snowflake", "meteor", ALONE)
FOR_GOOD = (AllocatorClosed, Exhausted, MaxValueWentBack, NodeIdsExhausted, NotCopyable)


class Process:
    def __init__(self, world: World, number: int, ids: ObservedAllocator | None = None) -> None:
        self.world, self.number = world, number
        self.clock = Clock(world.scheduler, 1000.0 * (number + 1))
        self.is_dead = self.is_paused = False
        self.may_start_threads = True
        self.stalls = 0.0
        """For how long the next thread that has an answer gets no time to look at it."""
        self.held: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.callers: list[Task] = []
        self.threads = world.plan.threads
        self.is_closing = False
        self.ran_since = 0.0
        """When it was paused last, the end of that."""
        self.closed_at: float | None = None
        self.stopped: dict[str, float] = {}
        """When a tag said for the first time that its ids went back."""
        self.brought: set[tuple[str, int]] = set()
        self.ranges: dict[str, list[range]] = defaultdict(list)
        self.served: Counter[str] = Counter()
        self.burnt: Counter[str] = Counter()
        self.spilt: Counter[str] = Counter()
        """How many ids calls may have held which failed in the middle."""
        self.ids = ids or world.allocator()
        self.alone: Snowflake | None = None

    def __repr__(self) -> str:
        return f"process {self.number}"

    def alone_id(self) -> int:
        """Of a generator without a lease, whose worker is this process's for ever."""
        if self.alone is None:
            waits: Literal["refuse", "wait"] = "wait" if self.number % 2 else "refuse"
            self.alone = Snowflake(self.number, layout=ALONE_LAYOUT, on_clock_back=waits, clock=Time.time, sleep=pause)
        return self.alone.next_id()

    def start(self) -> None:
        for _ in range(self.threads):
            self.callers.append(self.thread(Calls(self).run))
        self.callers[0].interruptible = True

    def thread(self, call: Callable[[], None]) -> Task:
        def run() -> None:
            with suppress(Killed):
                call()

        return self.world.scheduler.start(self, run)

    def kill(self) -> None:
        self.is_dead = True
        self.held.clear()

    def go_on(self) -> None:
        """After a pause: what came meanwhile is seen now."""
        self.is_paused = False
        self.ran_since = self.world.scheduler.now
        held, self.held = self.held, []
        for call, args in held:
            self.world.scheduler.after(0.0, call, *args)

    def close(self) -> None:
        """By a thread of its own."""
        self.ids.close()
        self.closed_at = self.world.scheduler.now


class Calls:
    """Of one thread."""

    def __init__(self, process: Process) -> None:
        self.process, self.world = process, process.world
        self.account, self.dice = process.world.account, process.world.scheduler.random
        self.refusals = 0
        self.last: dict[str, int] = {}

    def run(self) -> None:
        while not self.world.is_ending and self.refusals < ENOUGH:
            try:
                self.one()
                pause(self.dice.expovariate(1 / self.world.plan.think))
            except KeyboardInterrupt:
                self.account.counts["interrupted between calls"] += 1

    def one(self) -> None:
        ids = self.process.ids
        if self.world.plan.leases and self.dice.random() < 0.6:
            self.single(self.dice.choice(STAMPS))
            return
        tag = self.dice.choice(self.world.tags)
        draw = self.dice.random()
        if draw < 0.6:
            self.single(tag)
        elif draw < 0.85:
            count = self.dice.randint(1, 15)
            self.ask(tag, count, lambda: ids.next_ids(tag, count))
        elif draw < 0.95:  # `for id in sequence`, for a few ids
            endless = iter(ids.sequence(tag))
            for _ in range(self.dice.randint(1, 5)):
                if self.ask(tag, 1, lambda: [next(endless)]):
                    return
        else:
            size = self.dice.randint(1, 30)
            self.ask(tag, 0, lambda: ids.reserve(tag, size))

    def single(self, what: str) -> BaseException | None:
        return self.ask(
            what, 1, lambda: [STAMP[what](self.process) if what in STAMP else self.process.ids.next_id(what)]
        )

    def ask(self, what: str, spills: int, call: Callable[[], Sequence[int]]) -> BaseException | None:
        """One call, and what it did written down; its error. `spills`: how many ids it may hold when it fails."""
        process, began = self.process, self.world.scheduler.now
        try:
            found = call()
        except (AllocatorError, Surprise) as error:
            process.spilt[what] += max(0, spills - 1)
            self.ended(what, began)
            self.look(error)
            self.account.refused(process, what, error)
            return error
        except KeyboardInterrupt as error:
            process.spilt[what] += spills
            self.account.counts["interrupted in a call"] += 1
            return error
        if what in STAMP:
            self.account.gave_stamp(process, what, found[0], began)
        else:
            self.account.gave(process, what, found, began)
            process.served[what] += len(found)
            self.ended(what, began)
        if spills:
            self.rises(what, found)
        else:
            process.burnt[what] -= len(found)
            self.account.counts["blocks"] += 1
        return None

    def rises(self, what: str, found: Sequence[int]) -> None:
        """The ids that one thread sees increase; with several shards those of each."""
        shards = self.world.plan.shards
        if what == "snowflake" and self.process.clock.was_set_back:
            return  # by more than the lease, perhaps: then another worker begins by the clock on the wall
        for value in found:
            residue = f"{what} {value % shards}" if what not in STAMP else what
            if value <= self.last.get(residue, 0):
                raise Violation(f"{value} of {what} came after {self.last[residue]} in {self.process}")
            self.last[residue] = value

    def look(self, error: Exception) -> None:
        if not isinstance(error, AllocatorClosed):
            return
        self.refusals += 1
        if not self.process.is_closing:
            raise Violation(f"{self.process} says that it is closed, and is not")

    def ended(self, what: str, began: float) -> None:
        """No call for a tag may last longer than its deadline, unless its process did not run."""
        late = self.world.scheduler.now - max(began, self.process.ran_since) - self.world.plan.timeout - SLACK
        if late > 0 and what not in STAMP:
            raise Violation(f"a call of {self.process} for {what} began at {began} and ended only now")


# -- after the faults


def probe(process: Process) -> list[str]:
    """Starts a thread that asks; what it returns gets empty as the answers come."""
    still = [*process.world.tags, *(STAMP if process.world.plan.leases else ())]
    process.thread(lambda: ask_all(Calls(process), still))
    return still


def ask_all(calls: Calls, still: list[str]) -> None:
    while still:
        for what in list(still):
            if has_answer(calls, what):
                still.remove(what)
        if still:
            pause(0.05)


def has_answer(calls: Calls, what: str) -> bool:
    error = calls.single(what)
    if isinstance(error, ServerReplaced):
        repair(calls.process, what)
    if error is None or isinstance(error, FOR_GOOD):
        calls.world.count(f"ended with {type(error).__name__}" if error else "went on")
        return True
    return False


def repair(process: Process, tag: str) -> None:
    """What an operator does: above all ids in use, as a gap does it where there is room, and else as they know."""
    world = process.world
    try:
        limit = world.limits[tag]
        process.ids.tags.repair(tag, above=limit if limit < 10_000 else None)
    except DatabaseUnavailable:
        return
    except UnknownTag:
        if not world.may_be_gone(tag):
            raise
        return  # the server that goes on by now has forgotten that it was made
    world.count("tags repaired")
