"""What a program asks of its allocator: single ids, several, loops, blocks, meteors and snowflakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from allocator.errors import AllocatorClosed, AllocatorError
from simulation.account import ALONE
from simulation.dialect import Surprise
from simulation.scheduler import pause
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.process import Process

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
        if self.world.plan.leases and self.dice.random() < 0.6:
            self.stamp(self.dice.choice(STAMPS))
            return
        tag = self.dice.choice(self.world.tags)
        draw = self.dice.random()
        if draw < 0.6:
            self.ask(tag, 1, lambda: [self.process.ids.next_id(tag)])
        elif draw < 0.85:
            count = self.dice.randint(1, 15)
            self.ask(tag, count, lambda: self.process.ids.next_ids(tag, count))
        elif draw < 0.95:
            self.loop(tag)
        else:
            size = self.dice.randint(1, 30)
            self.ask(tag, 0, lambda: self.process.ids.reserve(tag, size))

    def loop(self, tag: str) -> None:
        """`for id in sequence`, for a few ids."""
        endless = iter(self.process.ids.sequence(tag))
        for _ in range(self.dice.randint(1, 5)):
            if not self.ask(tag, 1, lambda: [next(endless)]):
                return

    def ask(self, tag: str, spills: int, call: Callable[[], Sequence[int]]) -> bool:
        """One call, and what it did written down. `spills`: how many ids it may hold when it fails."""
        process, began = self.process, self.world.scheduler.now
        try:
            found = call()
        except (AllocatorError, Surprise) as error:
            process.spilt[tag] += max(0, spills - 1)
            self.ended(tag, began)
            self.look(error)
            self.account.refused(process, tag, error)
            return False
        except KeyboardInterrupt:
            process.spilt[tag] += spills
            self.account.counts["interrupted in a call"] += 1
            return False
        self.account.gave(process, tag, found, began)
        if spills:
            process.served[tag] += len(found)
            self.rises(tag, found)
        else:
            process.served[tag] += len(found)
            process.burnt[tag] -= len(found)
            self.account.counts["blocks"] += 1
        self.ended(tag, began)
        return True

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
        """No call may last longer than its deadline, unless its process did not run."""
        if self.world.scheduler.now - max(began, self.process.ran_since) > self.world.plan.timeout + SLACK:
            raise Violation(f"a call of {self.process} for {what} began at {began} and ended only now")

    def stamp(self, kind: str) -> None:
        process, began = self.process, self.world.scheduler.now
        try:
            value = STAMP[kind](process)
        except (AllocatorError, Surprise) as error:
            self.look(error)
            self.account.refused(process, kind, error)
            return
        except KeyboardInterrupt:
            self.account.counts["interrupted in a call"] += 1
            return
        self.account.gave_stamp(process, kind, value, began)
        self.rises(kind, [value])
