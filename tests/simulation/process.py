"""A process: the real allocator, its clocks, and threads that draw ids from it until it ends."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from allocator.generators.snowflake import Snowflake
from allocator.schemes.formats.bit_layout import Layout
from simulation.calls import Calls
from simulation.clocks import Clock, Time, sleep
from simulation.observed import ObservedAllocator
from simulation.scheduler import Killed, Task

if TYPE_CHECKING:
    from simulation.world import World

ALONE = Layout(sign=1, timestamp=43, datacenter=12, worker=4, sequence=4)


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
            self.alone = Snowflake(self.number, layout=ALONE, on_clock_back=waits, clock=Time.time, sleep=sleep)
        return self.alone.next_id()

    def start(self) -> None:
        for _ in range(self.threads):
            self.callers.append(self.thread(Calls(self).run))
        self.callers[0].interruptible = True

    def thread(self, call: Callable[[], None]) -> Task:
        def run() -> None:
            try:
                call()
            except Killed:
                return

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
