"""What happens in a world: as data that is drawn, printed and shortened, and what each step does."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from allocator.schemes.shared.argument_checks import MAX_ID
from allocator.schemes.tag import AUTO, REFUSE, FailoverGap
from simulation.dialect import Fate
from simulation.faces import forked
from simulation.process import Process
from simulation.seeds import is_out
from simulation.store import restored

if TYPE_CHECKING:
    from simulation.network import Place
    from simulation.store import Entry, Server
    from simulation.world import World

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

    def only(self, steps: tuple[int, ...] | None = None, tags: int | None = None, **fewer: int | None) -> Plan:
        """With these steps alone, by their numbers, and so many tags, threads and processes."""
        known = dict(zip(self.kept, self.steps, strict=True))
        kept = self.kept if steps is None else steps
        some = {name: number for name, number in fewer.items() if number}
        return replace(self, kept=kept, steps=tuple(known[number] for number in kept), tags=self.tags[:tags], **some)

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


# -- what each step does


def act(world: World, step: Step) -> None:
    """Carry out a step, if there is something it can be done to."""
    if step.kind in FATES:
        world.place(step.who).fates.append((FATES[step.kind], step.who // 7))
    elif does := {**SERVERS, **LOSSES}.get(step.kind):
        does(world, world.place(step.who), step)
    else:
        alive = [process for process in world.processes if not process.is_dead]
        if alive:
            PROCESSES[step.kind](world, alive[step.who % len(alive)], step)


# -- processes


def kill(world: World, process: Process, step: Step) -> None:
    process.kill()
    world.count(step.kind)
    if any(not one.is_dead for one in world.processes):
        return
    world.start()


def pause(world: World, process: Process, step: Step) -> None:
    """Of the process, or of its whole machine: then its clocks stand."""
    if not process.is_paused:
        process.is_paused = True
        world.count(step.kind)
        world.scheduler.after(step.size, go_on, process, step.size * (step.kind == "suspend"))


def go_on(process: Process, stood: float) -> None:
    if process.is_paused:
        process.clock.stand(stood)
        process.go_on()


def stall(world: World, process: Process, step: Step) -> None:
    process.stalls = step.size


def partition(world: World, process: Process, step: Step) -> None:
    place = world.place(step.who // 3)
    place.cut_off.add(process.number)
    world.count(step.kind)
    world.scheduler.after(step.size, place.cut_off.discard, process.number)


def fork(world: World, process: Process, step: Step) -> None:
    if process.is_paused or len(world.processes) > 5:
        return
    child = Process(world, len(world.processes), forked(process.ids))
    child.alone = process.alone and forked(process.alone)
    child.is_closing, child.closed_at = process.is_closing, process.closed_at
    child.stopped = {}
    world.processes.append(child)
    if not is_out("the hooks of a fork"):
        things = [child.ids] if child.alone is None else [child.ids, child.alone]
        for supply in [supply for thing in things for supply in thing._supplies()]:
            supply._forget()
        for thing in things:
            thing.after_fork()
    child.start()
    world.count(step.kind)


def interrupt(world: World, process: Process, step: Step) -> None:
    """Ctrl-C, in the thread that gets signals."""
    task = process.callers[0]
    if task and task.interruptible and not process.is_paused:
        world.scheduler.after(0.0, task.wake, task.number, KeyboardInterrupt())


def close(world: World, process: Process, step: Step) -> None:
    if not process.is_closing and not process.is_paused:
        process.is_closing = True
        process.thread(process.close)
        world.count(step.kind)


def start(world: World, process: Process, step: Step) -> None:
    if len(world.processes) < 6:
        world.start()


def no_threads(world: World, process: Process, step: Step) -> None:
    process.may_start_threads = False
    world.count(step.kind)
    world.scheduler.after(step.size, setattr, process, "may_start_threads", True)


def clock(world: World, process: Process, step: Step) -> None:
    process.clock.jump(step.size)
    world.database_off += step.size / 3
    world.count("clocks set back" if step.size < 0 else "clocks set forward")


# -- servers


def crash(world: World, place: Place, step: Step) -> None:
    restart(world, place, step.size, 0, is_restart=world.plan.durable)
    world.count(step.kind)


def freeze(world: World, place: Place, step: Step) -> None:
    server = place.server
    server.is_frozen = True
    world.count(step.kind)
    world.scheduler.after(step.size, setattr, server, "is_frozen", False)


def lose(world: World, place: Place, step: Step) -> None:
    """A server that had not written its newest commits to the disk, unless it is durable."""
    if world.plan.durable:
        crash(world, place, step._replace(size=0.2))
    else:
        restart(world, place, 0.2, int(step.size))


def restore(world: World, place: Place, step: Step) -> None:
    """An older backup goes on in the place of what is there: on another server, or an operator says so."""
    moves = step.who % 2 == 0
    restart(world, place, 0.5, int(step.size), moves=moves, is_told=world.plan.durable and not moves)
    world.count(step.kind)


def restart(
    world: World,
    place: Place,
    seconds: float,
    lost: int,
    *,
    is_restart: bool = False,
    moves: bool = False,
    is_told: bool = False,
) -> None:
    server = place.server
    if not server.is_up:
        return
    server.stop()
    kept = forget(world, server, lost, is_disk=True)
    if is_told and not is_out("an operator says that a backup goes on"):
        kept = [*kept, restored(kept)]
    name = place.next_name() if moves else server.name
    world.scheduler.after(seconds, partial(place.replace, name, kept, is_restart=is_restart))


def promote(world: World, place: Place, step: Step) -> None:
    """A standby goes on without what it had not got; some processes reach the old server a while longer."""
    old = place.server
    if not old.is_up:
        return
    kept = forget(world, old, int(step.size), is_disk=False)
    place.replace(old.name if is_out("a standby is another server") else place.next_name(), kept)
    place.behind = {process.number: old for process in world.processes if (process.number + step.who) % 2}
    world.count(step.kind)
    # What crosses to the old run now would be forgotten with its failover_gap: see `Server.kept`.
    stays = step.who % 3 and old.has_crossed()
    if stays:
        world.had_two = True
        world.has_lost = True  # what it is given from now on
    world.scheduler.after(0.3 if stays else 0.0, old.stop)


def forget(world: World, server: Server, lost: int, is_disk: bool) -> list[Entry]:
    kept = server.kept(lost, is_disk)
    if len(kept) < len(server.log):
        world.has_lost = True
        world.count("commits forgotten", len(server.log) - len(kept))
    return kept


FATES = {fate.value: fate for fate in Fate if fate is not Fate.WELL}
PROCESSES: dict[str, Callable[[World, Process, Step], None]] = {
    "kill": kill,
    "pause": pause,
    "suspend": pause,
    "stall": stall,
    "partition": partition,
    "fork": fork,
    "interrupt": interrupt,
    "close": close,
    "start": start,
    "no threads": no_threads,
    "clock": clock,
}
SERVERS: dict[str, Callable[[World, Place, Step], None]] = {
    "crash": crash,
    "freeze": freeze,
}
LOSSES: dict[str, Callable[[World, Place, Step], None]] = {"lose": lose, "promote": promote, "restore": restore}
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


# -- a seed


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    dice = random.Random(f"plan {seed}")
    leases = dice.random() < 0.25
    loses = dice.random() < 0.5
    shards = 1 if dice.random() < 0.8 else dice.randint(2, 3)
    kinds = (*FATES,) * 2 + (*PROCESSES,) * 2 + (*SERVERS,) + (*LOSSES,) * 2 * loses + CLOCKS * 4 * leases
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
