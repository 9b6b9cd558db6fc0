"""After the faults: every process must give an id of every tag, or say for good why it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from simulation.calls import STAMP
from simulation.scheduler import pause

if TYPE_CHECKING:
    from simulation.process import Process

FOR_GOOD = (AllocatorClosed, Exhausted, MaxValueWentBack, NodeIdsExhausted, NotCopyable)


def probe(process: Process) -> list[str]:
    """Starts a thread that asks; what it returns gets empty as the answers come."""
    kinds = list(STAMP) if process.world.plan.leases else []
    still = [*process.world.tags, *kinds]
    process.thread(lambda: ask_all(process, still))
    return still


def ask_all(process: Process, still: list[str]) -> None:
    while still:
        for what in list(still):
            if has_answer(process, what):
                still.remove(what)
        if still:
            pause(0.05)


def has_answer(process: Process, what: str) -> bool:
    world, began = process.world, process.world.scheduler.now
    account = world.account
    try:
        if what in STAMP:
            account.gave_stamp(process, what, STAMP[what](process), began)
        else:
            account.gave(process, what, [process.ids.next_id(what)], began)
            process.served[what] += 1
    except FOR_GOOD as error:
        account.refused(process, what, error)
        world.count(f"ended with {type(error).__name__}")
        return True
    except ServerReplaced as error:
        account.refused(process, what, error)
        repair(process, what)
        return False
    except AllocatorError as error:
        account.refused(process, what, error)
        return False
    world.count("went on")
    return True


def repair(process: Process, tag: str) -> None:
    """What an operator does: above all ids in use, as a gap does it where there is room, and else as they know."""
    world = process.world
    try:
        limit = world.limit(tag)
        process.ids.tags.repair(tag, above=limit if limit < 10_000 else None)
    except DatabaseUnavailable:
        return
    except UnknownTag:
        if not world.may_be_gone(tag):
            raise
        return  # the server that goes on by now has forgotten that it was made
    world.count("tags repaired")
