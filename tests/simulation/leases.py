"""Who holds which worker for which milliseconds, and which node: no two, and no id that is not within one's own."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.snowflake import SnowflakeSettings
from allocator.schemes.worker_number_lease import NumberLease
from simulation.violation import Violation

if TYPE_CHECKING:
    from simulation.process import Process

BEGIN = 1_799_999_995
"""The epochs of these ids, in seconds since 1970: a moment before the world begins."""
SNOWFLAKE = SnowflakeSettings(BEGIN * 1000, Layout(sign=1, timestamp=57, datacenter=1, worker=1, sequence=4), lease=2.0)
METEOR = MeteorSettings(BEGIN, Layout(sign=1, second=5, node=51, sequence=4, random=3))


@dataclass
class Held:
    """A worker, from one millisecond to another."""

    process: Process
    holder: str
    since: int
    until: int
    is_over: bool = False
    """Its holder gave it back: the answer to a renewal before may come later."""


class Leases:
    def __init__(self) -> None:
        self._workers: dict[int, list[Held]] = defaultdict(list)
        self._nodes: dict[int, Process] = {}

    def leased(self, process: Process, lease: NumberLease, wall_ms: int) -> None:
        """That was committed, and answered: times from the first request to a length after the last one."""
        until = wall_ms + lease.length_ms
        ours = next((held for held in self._workers[lease.number] if held.holder == lease.holder), None)
        if ours is None:
            ours = Held(process, lease.holder, wall_ms, until)
            self._workers[lease.number].append(ours)
        if not ours.is_over:
            ours.until = max(ours.until, until)
        for held in self._workers[lease.number]:
            if held.process is process:
                continue  # one lease after the other, of which the later begins behind the last id of the earlier
            if held is not ours and held.since <= ours.until and ours.since <= held.until:
                raise Violation(f"worker {lease.number} is of {process} and of {held.process} at one time")

    def released(self, lease: NumberLease, used_ms: int) -> None:
        """Its holder asks to give it back, and makes no more ids."""
        for held in self._workers[lease.number]:
            if held.holder == lease.holder:
                held.until, held.is_over = used_ms, True

    def registered(self, process: Process, node: int) -> None:
        if self._nodes.setdefault(node, process) is not process:
            raise Violation(f"node {node} is of {process} and of {self._nodes[node]}")

    def check(self, process: Process, kind: str, value: int) -> None:
        """Whether this id is within what the process holds."""
        if kind == "meteor":
            node = METEOR.layout.unpack(value)["node"]
            if self._nodes.get(node) is not process:
                raise Violation(f"{process} gave meteor {value}, whose node {node} is not its own")
            return
        fields = SNOWFLAKE.layout.unpack(value)
        number, at = fields["datacenter"] << 1 | fields["worker"], fields["timestamp"] + SNOWFLAKE.epoch
        if not any(held.process is process and held.since <= at <= held.until for held in self._workers[number]):
            raise Violation(f"{process} gave snowflake {value}, of worker {number} at {at}, which is not in its lease")
