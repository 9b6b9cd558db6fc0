"""What happens in a world, as data: drawn from a seed, printed, and shortened when it fails."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.tag import AUTO, REFUSE, FailoverGap
from simulation.fates import Fate

FAULTS_END = 2.0
"""Seconds of the world after which everything is mended."""


class TagShape(NamedTuple):
    """The settings of a tag; `is_new`: nobody has made it."""

    step: int
    max_step: int
    limit: int
    failover_gap: FailoverGap
    is_new: bool = False


class Step(NamedTuple):
    """One fault. `who` is a number that is taken modulo what there is; `size` is in seconds, or how many commits."""

    moment: float
    kind: str
    who: int = 0
    size: float = 0.0


@dataclass(frozen=True)
class Plan:
    """loses: whether servers may come back without their newest commits.
    durable: whether a server has everything after a restart; else each start counts as another server.
    kept: which of the steps that were drawn are these, from 0 on.
    """

    seed: int
    processes: int
    threads: int
    tags: tuple[TagShape, ...]
    shards: int
    leases: bool
    loses: bool
    durable: bool
    timeout: float
    think: float
    steps: tuple[Step, ...]

    kept: tuple[int, ...] = ()

    def only(
        self,
        steps: tuple[int, ...] | None = None,
        tags: int | None = None,
        threads: int | None = None,
        processes: int | None = None,
    ) -> Plan:
        """With these steps alone, by their numbers, and so many of the others."""
        known = dict(zip(self.kept, self.steps, strict=True))
        kept = self.kept if steps is None else steps
        return replace(
            self,
            kept=kept,
            steps=tuple(known[number] for number in kept),
            tags=self.tags[:tags],
            threads=threads or self.threads,
            processes=processes or self.processes,
        )

    @property
    def words(self) -> str:
        """The arguments that run this plan again."""
        drawn = draw(self.seed)
        told = [f"--seed {self.seed}"]
        if self.kept != drawn.kept:
            told.append(f"--steps {','.join(map(str, self.kept)) or 'none'}")
        if len(self.tags) != len(drawn.tags):
            told.append(f"--tags {len(self.tags)}")
        others = ((name, getattr(self, name), getattr(drawn, name)) for name in ("threads", "processes"))
        told += [f"--{name} {ours}" for name, ours, theirs in others if ours != theirs]
        return " ".join(told)


STATEMENTS = tuple(fate.value for fate in Fate if fate is not Fate.WELL)
PROCESSES = (
    "kill",
    "pause",
    "suspend",
    "stall",
    "partition",
    "fork",
    "interrupt",
    "close",
    "start",
    "no threads",
    "clock",
)
SERVERS = ("crash", "freeze")
LOSSES = ("lose", "promote", "restore")
CLOCKS = ("clock", "suspend", "partition", "start")
SIZES = {
    "pause": (0.05, 2.5),
    "suspend": (0.05, 2.5),
    "stall": (0.1, 2.5),
    "partition": (0.05, 1.0),
    "no threads": (0.1, 2.0),
    "clock": (-4.0, 4.0),
    "crash": (0.01, 1.0),
    "freeze": (0.01, 1.0),
    "lose": (1, 20),
    "promote": (0, 20),
    "restore": (5, 200),
}
KINDS = (*STATEMENTS, *PROCESSES, *SERVERS, *LOSSES)


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"plan {seed}")
    leases = dice.random() < 0.25
    loses = dice.random() < 0.5
    shards = 1 if dice.random() < 0.8 else dice.randint(2, 3)
    kinds = STATEMENTS * 2 + PROCESSES * 2 + SERVERS + (LOSSES * 2 if loses else ()) + (CLOCKS * 4 if leases else ())
    steps = sorted(draw_step(dice, kinds) for _ in range(dice.randint(2, 16)))
    return Plan(
        seed=seed,
        processes=dice.randint(1, 3) + 2 * leases,
        threads=dice.randint(1, 3),
        tags=tuple(draw_tag(dice, loses) for _ in range(dice.randint(1, 4))),
        shards=shards,
        leases=leases,
        loses=loses,
        durable=dice.random() < 0.7,
        timeout=dice.choice((0.05, 0.1, 0.2)),
        think=dice.choice((0.02, 0.05, 0.1)),
        steps=tuple(steps),
        kept=tuple(range(len(steps))),
    )


def draw_tag(dice: random.Random, loses: bool) -> TagShape:
    step = dice.choice((1, 2, 5, 10, 20))
    max_step = step * dice.choice((1, 1, 4, 10))
    draw = dice.random()
    if draw < 0.15:  # close to its end, where no gap is left; without one, a server must not forget
        limit = dice.randint(1, 60 * step)
        return TagShape(step, max_step, limit, dice.choice((1000 * step, REFUSE)) if loses else 0)
    if draw < 0.3:
        return TagShape(step, max_step, MAX_ID, REFUSE)
    limit = dice.choice((MAX_ID, MAX_ID, 2**31 - 1))
    return TagShape(step, max_step, limit, dice.choice((1000 * max_step, AUTO, AUTO)), is_new=draw > 0.85)


def draw_step(dice: random.Random, kinds: tuple[str, ...]) -> Step:
    kind = dice.choice(kinds)
    low, high = SIZES.get(kind, (0, 0))
    size = dice.randint(int(low), int(high)) if kind in LOSSES else round(dice.uniform(low, high), 3)
    return Step(round(dice.uniform(0.0, FAULTS_END), 4), kind, dice.randrange(100), size)
