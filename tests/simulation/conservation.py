"""claimed = served + in memory + burnt, for each range, with a reason for whatever was burnt."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import TYPE_CHECKING

from allocator.generators.sequence import Sequence
from simulation.account import Account
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.process import Process


def in_memory(supply: Sequence) -> Iterator[int]:
    core = supply._core
    yield from copy(supply._values)
    yield from core._left
    yield from core._spare


def check(account: Account, process: Process) -> None:
    """Where no call is under way. Nothing may be missing but what a call that failed held, at most."""
    if tags := account.forgotten(process):
        raise Violation(f"{process} did not take what was claimed for it of {', '.join(tags)}")
    for tag, supply in process.ids._sequences.items():
        held = list(in_memory(supply))
        if len(set(held)) < len(held):
            raise Violation(f"{process} holds an id of {tag} twice")
        for value in held:
            if (tag, value) in account.served or account.owners.get((tag, value)) is not process:
                raise Violation(f"{process} holds {value} of {tag}, which was given or is not its own")
        claimed = sum(map(len, process.ranges[tag]))
        served = process.served[tag]
        missing = claimed - served - len(held) - process.burnt[tag]
        account.counts["burnt by their reason"] += process.burnt[tag]
        if missing < 0 or (missing > process.spilt[tag] and supply._core.stopped is None and process.closed_at is None):
            raise Violation(
                f"{process} claimed {claimed} ids of {tag}, gave {served}, holds {len(held)}, burnt "
                f"{process.burnt[tag]}, and {missing} are missing where {process.spilt[tag]} could be"
            )
