"""The book of every id: who claimed it, who gave it out, and what must never happen to it. Held after each event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from copy import copy
from typing import TYPE_CHECKING

from allocator.errors import Exhausted, MaxValueWentBack, ServerReplaced
from allocator.schemes.formats.bit_layout import Layout
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.snowflake import SnowflakeSettings
from simulation.seeds import Holders, Violation
from simulation.store import SEGMENT, is_crossing

if TYPE_CHECKING:
    from simulation.process import Process
    from simulation.store import Server, View

BEGIN = 1_799_999_995
"""The epochs of these ids, in seconds since 1970: a moment before the world begins."""
SNOWFLAKE = SnowflakeSettings(BEGIN * 1000, Layout(sign=1, timestamp=57, datacenter=1, worker=1, sequence=4), lease=2.0)
METEOR = MeteorSettings(BEGIN, Layout(sign=1, second=5, node=51, sequence=4, random=3))
ALONE = "snowflake alone"
"""Of a generator that belongs to no allocator."""


class Account:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.owners: dict[tuple[str, int], Process] = {}
        """Of each id that came to a process from the database, by tag."""
        self.served: dict[tuple[str, int], int] = {}
        self.workers = Holders()
        self.nodes: dict[int, Process] = {}
        self.used_up: set[str] = set()
        """The tags of which some shard has given its last id."""
        self._windows: dict[tuple[int, str], list[range]] = defaultdict(list)

    # -- what the database does

    def committing(self, server: Server, view: View, process: Process) -> None:
        """A transaction of that process takes effect now."""
        for (table, name), row in view.written.items():
            before = server.rows.get((table, name)) if table == SEGMENT else None
            if before is not None and row.max_value < before.max_value:
                raise Violation(f"max_value of {name} was lowered from {before.max_value} to {row.max_value}")
            if table == SEGMENT and row.limit - row.max_value < row.residue.step:
                self.used_up.add(str(name))
            if before is not None and is_crossing(before, row):
                self.counts["gaps skipped"] += 1
                if not process.world.has_moved:
                    raise Violation(f"{process} skipped ids of {name}, and no server was replaced")
        self.counts["claims committed"] += len(view.claims)

    def answered(self, process: Process, claims: Iterable[tuple[str, range]]) -> None:
        """That transaction was answered in time and without a warning: what it claimed may be used, once."""
        for name, window in claims:
            if window:  # a row may be raised by nothing
                self._windows[process.number, name].append(window)

    # -- what a process has

    def brought(self, process: Process, tag: str, segment: range) -> None:
        """The database's answer, as the process understands it."""
        window = next((w for w in self._windows[process.number, tag] if segment[0] in w and segment[-1] in w), None)
        if window is None:
            raise Violation(f"{process} has {segment} of {tag}, which was never committed for it")
        self._windows[process.number, tag].remove(window)
        for value in segment:
            other = self.owners.setdefault((tag, value), process)
            if other is not process or (tag, value) in process.brought:
                raise Violation(f"{process} has {value} of {tag}, which {other} has already")
            process.brought.add((tag, value))
        process.ranges[tag].append(segment)

    # -- what a caller gets

    def gave(self, process: Process, tag: str, values: Iterable[int], began: float) -> None:
        """A call that began at that moment returned these."""
        if process.closed_at is not None and began > process.closed_at:
            raise Violation(f"{process} gave ids of {tag} after it was closed")
        if began > process.stopped.get(tag, began):
            raise Violation(f"{process} gave ids of {tag} after it was stopped")
        for value in values:
            if self.owners.get((tag, value)) is not process:
                raise Violation(f"{process} gave {value} of {tag}, which is not its own")
            if (tag, value) in self.served:
                raise Violation(f"{value} of {tag} was given twice, by {self.served[tag, value]} and {process}")
            if value > process.world.limits[tag]:
                raise Violation(f"{process} gave {value} of {tag}, beyond its limit")
            self.served[tag, value] = process.number
            self.counts["ids"] += 1

    def gave_stamp(self, process: Process, kind: str, value: int, began: float) -> None:
        """A meteor or snowflake: nobody claims these one by one."""
        if kind != ALONE and process.closed_at is not None and began > process.closed_at:
            raise Violation(f"{process} gave a {kind} after it was closed")
        if (kind, value) in self.served:
            raise Violation(f"{kind} {value} was given twice, by {self.served[kind, value]} and {process}")
        if kind != ALONE:
            self.check_stamp(process, kind, value)
        self.served[kind, value] = process.number
        self.counts[f"{kind}s"] += 1

    def check_stamp(self, process: Process, kind: str, value: int) -> None:
        """Whether this id is within what the process holds."""
        if kind == "meteor":
            if self.nodes.get(node := METEOR.layout.unpack(value)["node"]) is not process:
                raise Violation(f"{process} gave meteor {value}, whose node {node} is not its own")
            return
        fields = SNOWFLAKE.layout.unpack(value)
        number, at = fields["datacenter"] << 1 | fields["worker"], fields["timestamp"] + SNOWFLAKE.epoch
        if not self.workers.is_held(number, process, at):
            raise Violation(f"{process} gave snowflake {value}, of worker {number} at {at}, which is not in its lease")

    def refused(self, process: Process, tag: str, error: Exception) -> None:
        """A call raised this."""
        self.counts[type(error).__name__] += 1
        if isinstance(error, MaxValueWentBack):
            process.stopped.setdefault(tag, process.world.scheduler.now)
            if not process.world.may_be_gone(tag):
                raise Violation(f"{process} was stopped where nothing was forgotten: {error}")
        if isinstance(error, ServerReplaced) and not process.world.has_moved:
            raise Violation(f"{process} says that a server was replaced, and none was: {error}")
        if isinstance(error, Exhausted) and tag in process.world.tags and not self._is_used_up(process, tag):
            raise Violation(f"{process} says that {tag} is used up: {error}")

    def _is_used_up(self, process: Process, tag: str) -> bool:
        """Also where the limit is so low that some shard has no id at all."""
        world = process.world
        return tag in self.used_up or world.limits[tag] < world.plan.shards

    def check_conserved(self, process: Process) -> None:
        """claimed = served + in memory + burnt, for each range, with a reason for whatever was burnt.

        Where no call is under way. Nothing may be missing but what a call that failed held, at most."""
        windows = self._windows.items()
        if tags := [tag for (number, tag), missed in windows if number == process.number and missed]:
            raise Violation(f"{process} did not take what was claimed for it of {', '.join(tags)}")
        for tag, supply in process.ids._sequences.items():
            core = supply._core
            held = [*copy(supply._values), *core._left, *core._spare]
            if len(set(held)) < len(held):
                raise Violation(f"{process} holds an id of {tag} twice")
            for value in held:
                if (tag, value) in self.served or self.owners.get((tag, value)) is not process:
                    raise Violation(f"{process} holds {value} of {tag}, which was given or is not its own")
            claimed = sum(map(len, process.ranges[tag]))
            served = process.served[tag]
            missing = claimed - served - len(held) - process.burnt[tag]
            self.counts["burnt by their reason"] += process.burnt[tag]
            if missing < 0 or (missing > process.spilt[tag] and core.stopped is None and process.closed_at is None):
                raise Violation(
                    f"{process} claimed {claimed} ids of {tag}, gave {served}, holds {len(held)}, burnt "
                    f"{process.burnt[tag]}, and {missing} are missing where {process.spilt[tag]} could be"
                )
