"""What each step of a plan does to the world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from simulation.fates import Fate
from simulation.memory import forked
from simulation.plan import Step
from simulation.process import Process
from simulation.store import restored

if TYPE_CHECKING:
    from simulation.place import Place
    from simulation.store import Entry, Server
    from simulation.world import World


def act(world: World, step: Step) -> None:
    """Carry out a step, if there is something it can be done to."""
    if step.kind in FATES:
        world.place(step.who).fates.append((FATES[step.kind], step.who // 7))
    elif step.kind in SERVERS:
        SERVERS[step.kind](world, world.place(step.who), step)
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
    if not process.is_paused:
        process.is_paused = True
        world.count(step.kind)
        world.scheduler.after(step.size, go_on, process, 0.0)


def suspend(world: World, process: Process, step: Step) -> None:
    if not process.is_paused:
        process.is_paused = True
        world.count(step.kind)
        world.scheduler.after(step.size, go_on, process, step.size)


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
    world.add(child)
    if world.variant.fork_hooks:
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
    if is_told and world.variant.operators_tell:
        kept = [*kept, restored(kept)]
    name = place.next_name() if moves else server.name
    world.scheduler.after(seconds, partial(place.replace, name, kept, is_restart=is_restart))


def promote(world: World, place: Place, step: Step) -> None:
    """A standby goes on without what it had not got; some processes reach the old server a while longer."""
    old = place.server
    if not old.is_up:
        return
    kept = forget(world, old, int(step.size), is_disk=False)
    place.replace(old.name if world.variant.promotions_unseen else place.next_name(), kept)
    place.behind = {process.number: old for process in world.processes if (process.number + step.who) % 2}
    world.count(step.kind)
    # What crosses to the old run now would be forgotten with its failover_gap: see `Server.kept`.
    stays = step.who % 3 and old.has_crossed()
    if stays:
        world.had_two = True
        world.has_lost = True  # what it is given from now on
    world.scheduler.after(0.3 if stays else 0.0, old.stop)


def forget(world: World, server: Server, lost: int, is_disk: bool) -> list[Entry]:
    kept = server.kept(lost, is_disk, world.variant.forgets_gaps)
    if len(kept) < len(server.log):
        world.has_lost = True
        world.count("commits forgotten", len(server.log) - len(kept))
    return kept


FATES = {fate.value: fate for fate in Fate}
PROCESSES: dict[str, Callable[[World, Process, Step], None]] = {
    "kill": kill,
    "pause": pause,
    "suspend": suspend,
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
    "lose": lose,
    "restore": restore,
    "promote": promote,
}
