"""Which worker number of the snowflake layout a process leases. Other generators: `worker_number_lease.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from allocator.errors import AllocatorError, InvalidSetting, NodeIdsExhausted
from allocator.schemes.formats.bit_layout import Layout, moment

CHOICE = 16
"""Candidates to pick from at random, so that processes that start together rarely pick the same one."""


@dataclass(frozen=True, slots=True)
class SnowflakeWorker:
    """A snowflake worker and its lease: `number` is datacenter and worker, `until` milliseconds since 1970."""

    number: int
    layout: str
    epoch: int
    holder: str
    until: int
    host: str
    process: int


def check_same(workers: Sequence[SnowflakeWorker], layout: Layout, epoch: int) -> None:
    """Raise `InvalidSetting` where a lease was written for another layout or epoch."""
    for worker in workers:
        if (worker.layout, worker.epoch) != (str(layout), epoch):
            raise InvalidSetting(
                f"worker {worker.number} was leased for layout {worker.layout} and epoch {worker.epoch}, but this "
                f"process uses {layout} and {epoch}; all processes of a database must use the same. To change the "
                "format, first make sure that no id of the old one is in use; then stop all processes and delete the "
                "rows of allocator_worker"
            )


def choose_worker(
    workers: Sequence[SnowflakeWorker], layout: Layout, epoch: int, now: int, pick: int
) -> SnowflakeWorker | int:
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


def exhausted(workers: Sequence[SnowflakeWorker], now: int) -> AllocatorError:
    ends = min(worker.until for worker in workers)
    holders = sorted({f"{worker.host} (process {worker.process})" for worker in workers})
    named = ", ".join(holders[:5]) + (" and others" if len(holders) > 5 else "")
    return NodeIdsExhausted(
        f"all {len(workers)} workers are leased, by {named}; "
        f"the next lease ends in {max(0, ends - now) / 1000:.0f} s, at {moment(ends / 1000)}"
    )
