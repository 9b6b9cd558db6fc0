"""The shards of a fleet in this process: used in rotation, without those that fail, and more as the fleet grows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from time import monotonic

from allocator.database.store import Database, sibling
from allocator.database.verbs import shard_row
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    FleetGrowing,
    InvalidArgument,
    MaxValueWentBack,
    SchemaDamaged,
    SchemaOutOfDate,
    ServerReplaced,
    ShardMisconfigured,
)
from allocator.fleet.bootstrap import Located, Opening, consistent
from allocator.rules.fleet_consistency import Shard, check_fleet, check_usable, lost, newer_place, superseded
from allocator.rules.fleet_growth_protocol import LEAD
from allocator.rules.rotation import Rotation
from allocator.runtime.thread_pool import Background
from allocator.runtime.waiting import block
from allocator.schemes.shared.residues import Residue

log = logging.getLogger("allocator")

PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds between two looks at the shards, of a call that waits until one can be used: in a growing fleet, and while
all fail, at the next probe but within these bounds."""
DRAWS = 10
"""How often a draw retries after a change of the shard's row, before another shard is tried."""

FAULTS = (
    DatabaseUnavailable,
    DatabaseRefused,
    MaxValueWentBack,
    SchemaDamaged,
    SchemaOutOfDate,
    ServerReplaced,
    ShardMisconfigured,
)
"""Errors of a shard, after which another one is tried."""
TAG_FAULTS = tuple(kind for kind in FAULTS if kind is not MaxValueWentBack)
"""The same for tags. `MaxValueWentBack` stops a tag instead: ids in memory may be from that shard."""


class Handle(Located):
    """One shard in this process. `row` is None until the shard answers."""

    def __init__(self, number: int, database: Database) -> None:
        self.number = number
        self.database = database
        self.row: Shard | None = None
        self.lock = threading.Lock()
        self.seen: dict[str, dict[Residue, int]] = {}
        """The greatest ticket of each type and residue. What is in it is replaced, and not changed."""
        self.went_back = False
        self.failing = False
        """Its failure was logged: later ones are not, until it is used again."""

    @property
    def leads(self) -> bool:
        """Whether this shard numbers nodes and leases workers for the fleet."""
        return self.row is not None and self.row.numbering.offset == LEAD

    def look(self) -> Shard:
        """Fetch the row. Raises an error if the shard must give no ids, as after a restore."""
        database, known = self.database, self.row
        start = database.start()
        if start.shard is None:
            raise lost(self.where)
        row = database.current(start=start).shard
        check_usable(self.where, row)
        is_older = known is not None and row.revision < known.revision
        if self.went_back or is_older:
            if row.numbering.floor <= max((max(seen.values()) for seen in self.seen.values()), default=0):
                raise MaxValueWentBack(
                    f"{self.where} lost ids that it had issued, as after a restore; to continue above all ids, run: "
                    f"allocator shards trust {self.where}"
                )
            self.seen, self.went_back = {}, False
        return row

    def draw(self, kind: str, take: Callable[[Handle, Shard], None]) -> int:
        """Draw the next ticket of a type. `take` gets a changed row."""
        for attempt in range(DRAWS):
            row, seen = self.row, self.seen.get(kind, {})
            assert row is not None
            try:
                ticket = self.database.ticket(kind, row, seen)
            except MaxValueWentBack:
                self.went_back = True
                raise
            if ticket is not None:
                residue = Residue(row.numbering.offset, row.numbering.step)
                with self.lock:  # another thread may have seen a greater one
                    seen = self.seen.get(kind, {})
                    self.seen[kind] = {**seen, residue: max(ticket, seen.get(residue, 0))}
                return ticket
            fresh = self.look()
            if fresh == row and attempt:  # the first look may have skipped tickets after a failover
                break
            take(self, fresh)
        if fresh.numbering.ceiling is None:
            raise DatabaseUnavailable(
                f"{self.where} drew nothing, though nothing had changed there; try again, and if it stays so: "
                "allocator db check"
            )
        raise FleetGrowing(
            f"{self.where} is at its ceiling while the fleet grows; if that was interrupted: allocator shards grow"
        )


class Shards:
    """Safe to use from several threads. Nothing is opened before the first call."""

    def __init__(self, databases: Sequence[Database], background: Background, name: str | None) -> None:
        self._name = name
        self._background = background
        self._lock = threading.Lock()
        self._opened = False
        self._unusable: dict[str, InvalidArgument] = {}
        """Shards that this process cannot use, by URL: others give ids, but a change of all shards is refused."""
        self.handles = [Handle(number, database) for number, database in enumerate(databases)]
        self.rotation = Rotation(len(databases))

    def open(self) -> None:
        """Once: look at all shards that answer, and raise if they do not form one fleet."""
        if self._opened:
            return
        looked = consistent(Opening(self.databases(), self._name).open, self._name)
        opened = list(zip(self.handles, looked, strict=False))
        found = [(handle, one.row) for handle, one in opened if one.row]
        with self._lock:
            if self._opened:
                return
            for handle, row in found:
                handle.row = row
        for handle, one in opened:
            if one.error:
                self.fail(handle, one.error)
        for handle, row in found:
            self.take(handle, row)
        self._opened = True

    def next(self) -> Handle:
        """The next shard. While none can be used, raises an error that asks for a pause."""
        while True:
            with self._lock:
                now = monotonic()
                choice = self.rotation.next(now)
                # One at a time on this thread: an exception from a hook would leave the others to nobody for ever.
                most = len(self.handles) if isinstance(choice, int) else 1
                due = [self.handles[number] for number in self.rotation.due(now, most)]
                errors = self.rotation.errors()
            if isinstance(choice, int):
                for handle in due:
                    self._background.submit(self._probe, handle)
                return self.handles[choice]
            for handle in due:
                self._probe(handle)  # on this thread: all threads of the pool may be waiting here
            if not due:
                raise self._unusable_for(errors, choice.seconds)

    def pause(self) -> None:
        block(self._background.closed, PAUSE)

    def _unusable_for(self, errors: list[AllocatorError], seconds: float) -> AllocatorError:
        if self._background.closed.done():
            return AllocatorClosed()
        error = errors[0].again()
        if len(errors) > 1 and any(isinstance(error, DatabaseUnavailable) for error in errors):
            error = DatabaseUnavailable(f"no shard can be used: {'; '.join(map(str, errors))}")
        if isinstance(error, DatabaseUnavailable):
            error.pause = min(max(PAUSE, seconds), LONGEST_PAUSE)
        return error

    def in_use(self) -> int:
        with self._lock:
            return len(self.handles) - len(self.rotation.errors())

    def fail(self, handle: Handle, error: AllocatorError) -> None:
        with self._lock:
            was_used = self.rotation.failed(handle.number, error, monotonic())
        if was_used or not handle.failing:
            log.warning("stopped using shard %s: %s", handle.where, error)
        handle.failing = True

    def _probe(self, handle: Handle) -> None:
        """Use a failed shard again if it is sound."""
        try:
            row = handle.look()
            check_fleet([*self._others(handle, row), (handle.where, row)], self._name)
        except AllocatorError as error:
            self.fail(handle, error)
            return
        except BaseException:
            self.fail(handle, DatabaseUnavailable(f"{handle.where} was not probed: the probe was interrupted"))
            raise
        self.take(handle, row)
        with self._lock:
            self.rotation.worked(handle.number, monotonic())
        log.log(logging.WARNING if handle.failing else logging.INFO, "using shard %s again", handle.where)
        handle.failing = False

    def _others(self, handle: Handle, row: Shard) -> list[tuple[str, Shard]]:
        """The rows of the other shards, without those of an older generation."""
        known = [(other.where, other.row) for other in self.handles if other.row and other is not handle]
        return [(where, other) for where, other in known if other.generation >= row.generation]

    def take(self, handle: Handle, row: Shard) -> None:
        """Take the new row of a shard. Stop using shards that it names as replaced or left out."""
        with self._lock:
            handle.row = row
        self._learn(row)
        for other in self.handles:
            if other.row and (newer := newer_place(other.row, row)):
                self.fail(other, superseded(other.where, newer))

    def _learn(self, row: Shard) -> None:
        """Start using the shards that a row names and this process does not know."""
        unusable: dict[str, InvalidArgument] = {}
        with self._lock:
            keys = {other.row.key for other in self.handles if other.row}
            urls = {other.database.address.public_url for other in self.handles if not other.row}
            for member in row.members:
                if member.key in keys or member.url in urls:
                    continue
                try:
                    database = sibling(self.databases(), member.url)
                except InvalidArgument as why:
                    unusable[member.url] = why
                    continue
                error = DatabaseUnavailable(f"{member.url} was not reached yet")
                self.handles.append(Handle(self.rotation.add(error, monotonic()), database))
        for url in unusable.keys() - self._unusable.keys():
            log.warning("this process cannot use a shard of the fleet; ids come from the others: %s", unusable[url])
        self._unusable |= unusable

    def lead(self) -> Database:
        """The shard that numbers nodes and leases workers for the fleet."""
        self.open()
        if not any(handle.leads for handle in self.handles):  # only `next` probes shards, and leases do not call it
            for handle in self.handles:
                if handle.row is None:
                    self._probe(handle)
        if found := next((handle for handle in self.handles if handle.leads), None):
            return found.database
        raise DatabaseUnavailable(f"the shard with offset {LEAD} was not reached yet")

    def all(self) -> list[Database]:
        """All shards by their current rows. Raises if this process cannot use one, as without its driver: a change of
        some shards alone, such as raising a tag, would be undone by the others."""
        self.open()
        for database in self.databases():
            if row := database.run(shard_row.fetch):
                self._learn(row)
        for why in self._unusable.values():
            raise why.again()
        return self.databases()

    def databases(self) -> list[Database]:
        """The databases known so far."""
        return [handle.database for handle in self.handles]

    def troubles(self) -> list[AllocatorError | None]:
        """The error of each shard that is not used; None for the others."""
        with self._lock:
            return [state.error for state in self.rotation.states]

    def abandon(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.Lock()
        for state in self.rotation.states:
            state.probing = False
        for handle in self.handles:
            handle.lock = threading.Lock()
            handle.database.abandon()

    def close(self) -> None:
        for database in self.databases():
            database.close()
