"""The registered nodes, and the workers with their leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from allocator.errors import AllocatorError, InvalidSetting, NodeIdsExhausted
from allocator.schemes.layout import Layout, moment

WARN_FROM = 0.8
"""The share of used node numbers from which each registration logs a warning."""

CHOICE = 16
"""Candidates to pick from at random, so that processes that start together rarely pick the same one."""


@dataclass(frozen=True, slots=True)
class Node:
    """One start of a meteor generator; its number is never used again."""

    number: int
    host: str
    process: int
    version: str
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Worker:
    """A snowflake worker and its lease: `number` is datacenter and worker, `until` milliseconds since 1970."""

    number: int
    layout: str
    epoch: int
    holder: str
    until: int
    host: str
    process: int


def check_node(number: int, layout: Layout) -> str:
    """A warning when node numbers run short, empty otherwise. Raises `NodeIdsExhausted` beyond the layout's width."""
    limit = layout.limit("node")
    if number > limit:
        raise NodeIdsExhausted(
            f"node {number} does not fit the layout {layout}, whose greatest node is {limit}; choose a layout with "
            "more bits for the node, and an epoch later than every id in use"
        )
    if number >= WARN_FROM * limit:
        return f"{100 * number // limit} % of the node numbers of layout {layout} are used: {number} of {limit}"
    return ""


def check_same(workers: Sequence[Worker], layout: Layout, epoch: int) -> None:
    """Raise `InvalidSetting` where a lease was written for another layout or epoch."""
    for worker in workers:
        if (worker.layout, worker.epoch) != (str(layout), epoch):
            raise InvalidSetting(
                f"worker {worker.number} was leased for layout {worker.layout} and epoch {worker.epoch}, but this "
                f"process uses {layout} and {epoch}; all processes of a database must use the same. To change it while "
                "no id of the old format is in use: stop all processes and empty allocator_worker"
            )


def choose_worker(workers: Sequence[Worker], layout: Layout, epoch: int, now: int, pick: int) -> Worker | int:
    """Choose a number that was never leased, or else a worker whose lease has ended; `pick` is a random number.

    Raises the errors of `check_same`, and `NodeIdsExhausted` when all workers are leased.
    """
    check_same(workers, layout, epoch)
    size = 1 << layout.widths["datacenter"] + layout.widths["worker"]
    taken = {worker.number for worker in workers}
    free = list(islice((number for number in range(size) if number not in taken), CHOICE))
    if free:
        return free[pick % len(free)]
    # By our clock, which may be ahead of the holder's. Then the holder loses its lease early, but no id repeats.
    expired = sorted((worker for worker in workers if worker.until < now), key=lambda worker: worker.until)
    if not expired:
        raise exhausted(workers, now)
    return expired[pick % min(len(expired), CHOICE)]


def exhausted(workers: Sequence[Worker], now: int) -> AllocatorError:
    ends = min(worker.until for worker in workers)
    holders = sorted({f"{worker.host} (process {worker.process})" for worker in workers})
    named = ", ".join(holders[:5]) + (" and others" if len(holders) > 5 else "")
    return NodeIdsExhausted(
        f"all {len(workers)} workers are leased, by {named}; "
        f"the next lease ends in {max(0, ends - now) / 1000:.0f} s, at {moment(ends / 1000)}"
    )
