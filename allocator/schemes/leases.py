"""Who has which number: the registered nodes, and the workers with their leases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from allocator.errors import AllocatorError, InvalidSetting, NodeIdsExhausted
from allocator.schemes.layout import Layout, moment

WARN_FROM = 0.8
"""Part of the node numbers in use from which every registration warns."""

CHOICE = 16
"""Candidates among which a process picks at random, so that several that start together do not all want one."""


@dataclass(frozen=True, slots=True)
class Node:
    """A start of a meteor generator; its number is never given again."""

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
            f"node {number} does not fit the layout {layout}, whose nodes end at {limit}; choose a layout with more "
            "bits for the node, and an epoch later than every id in use"
        )
    if number >= WARN_FROM * limit:
        return f"{100 * number // limit} % of the node numbers of layout {layout} are used: {number} of {limit}"
    return ""


def check_same(workers: Sequence[Worker], layout: Layout, epoch: int) -> None:
    """Raise `InvalidSetting` where a lease was written for another layout or epoch."""
    for found in workers:
        if (found.layout, found.epoch) != (str(layout), epoch):
            raise InvalidSetting(
                f"worker {found.number} was leased for layout {found.layout} and epoch {found.epoch}, and now {layout} "
                f"and {epoch} are asked for; all processes of a database must use the same. Only if no id of the other "
                "form is in use, stop them all and empty allocator_worker"
            )


def choose_worker(workers: Sequence[Worker], layout: Layout, epoch: int, now: int, pick: int) -> Worker | int:
    """A number that never was leased, or a worker whose lease has ended; `pick` is a random number.

    Raises as `check_same`, and `NodeIdsExhausted` when all workers are leased.
    """
    check_same(workers, layout, epoch)
    size = 1 << layout.widths["datacenter"] + layout.widths["worker"]
    taken = {found.number for found in workers}
    never = list(islice((number for number in range(size) if number not in taken), CHOICE))
    if never:
        return never[pick % len(never)]
    # Ended by our clock, which may run ahead of theirs: that costs them their reserve, and nobody an id.
    ended = sorted((found for found in workers if found.until < now), key=lambda found: found.until)
    if not ended:
        raise exhausted(workers, now)
    return ended[pick % min(len(ended), CHOICE)]


def exhausted(workers: Sequence[Worker], now: int) -> AllocatorError:
    ends = min(found.until for found in workers)
    holders = sorted({f"{found.host} (process {found.process})" for found in workers})
    named = ", ".join(holders[:5]) + (" and others" if len(holders) > 5 else "")
    return NodeIdsExhausted(
        f"all {len(workers)} workers are leased, by {named}; "
        f"the next lease ends in {max(0, ends - now) / 1000:.0f} s, at {moment(ends / 1000)}"
    )
