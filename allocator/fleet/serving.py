"""The shards that an allocator draws from: in turn, around those that fail, and after them as their fleet grows."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import TypeVar

from allocator.database.store import Database, sibling
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseUnavailable,
    FleetGrowing,
    InvalidArgument,
    InvalidTag,
    MaxValueWentBack,
)
from allocator.fleet.bootstrap import Opening
from allocator.fleet.shard import FAULTS, TAG_FAULTS, Handle, all_down
from allocator.rules.fleet import Shard, check_fleet, newer_place, superseded
from allocator.rules.fleet_growth import LEAD
from allocator.rules.rotation import Turns
from allocator.runtime.worker_pool import Background
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag

log = logging.getLogger("allocator")

T = TypeVar("T")

LOOK_AROUND = 0.05
"""Seconds after which a call that waits for a shard looks whether one is back."""

MOST = 0.9
"""Of the timeout, for a claim of segments: its caller should learn why it failed before it gives up."""


class Fleet:
    """Safe to use from several threads. Nothing is opened before the first call."""

    def __init__(
        self,
        databases: Sequence[Database],
        background: Background,
        fleet: str | None,
        statement: str | None,
        timeout: float,
    ) -> None:
        self._name = fleet
        self._statement = statement
        self._background = background
        self._timeout = timeout
        self._handles = [Handle(database) for database in databases]
        self._turns = Turns(len(databases))
        self._missed: dict[str, InvalidArgument] = {}
        self._templates: dict[str, tuple[Tag, bool]] = {}
        self._lock = threading.Lock()
        self._opened = False

    # -- tickets and segments

    def ticket(self, kind: str, end: float) -> int:
        """The next ticket of a type, from whichever shard is next, before `end`."""

        def draw(handle: Handle) -> int:
            try:
                return handle.draw(kind, lambda row: self._take(handle, row))
            except MaxValueWentBack:
                handle.went_back = True
                raise

        return self._on_a_shard(draw, end, FAULTS)

    def open_segment(self, template: Tag, create: bool) -> Tag:
        self._templates[template.name] = (template, create)
        return self._on_a_shard(lambda handle: handle.database.open_segment(template, create), self._end(), TAG_FAULTS)

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        def claim(handle: Handle) -> range:
            if not handle.database.has_opened(name):
                handle.database.open_segment(*self._templates[name])
            return handle.database.claim_segment(name, size, seen, exact=exact)

        return self._on_a_shard(claim, self._end(), TAG_FAULTS)

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        self._templates.update({template.name: (template, create) for template in templates})
        return self._on_a_shard(lambda handle: handle.database.open_segments(templates), self._end(), TAG_FAULTS)

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return self._on_a_shard(lambda handle: handle.database.claim_segments(claims), self._end(), TAG_FAULTS)

    def register_node(self) -> int:
        return self.lead().register_node()

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        return self.lead().lease_worker(claim, layout, epoch)

    def _end(self) -> float:
        return monotonic() + MOST * self._timeout

    def _on_a_shard(self, act: Callable[[Handle], T], end: float, faults: tuple[type[AllocatorError], ...]) -> T:
        """Act on the next shard; where it fails by its own fault, on another one, until `end`."""
        self.open()
        refusals: dict[int, AllocatorError] = {}
        while True:
            number = self._next(end)
            try:
                return act(self._handles[number])
            except (AllocatorClosed, InvalidTag):
                raise
            except FleetGrowing as error:
                refusals[number] = error
            except faults as error:
                self._fail(number, error)
                if monotonic() >= end:
                    raise
            except MaxValueWentBack:
                raise
            except AllocatorError as error:  # the shard is well, and this cannot be had there
                refusals[number] = error
            self._raise_if_refused(refusals, end)

    def _raise_if_refused(self, refusals: dict[int, AllocatorError], end: float) -> None:
        """When every shard in use has refused; but a fleet that grows is waited for."""
        if len(refusals) < max(1, self._in_use()):
            return
        last = list(refusals.values())[-1]
        if not isinstance(last, FleetGrowing) or monotonic() >= end:
            raise last
        self._background.closed.wait(LOOK_AROUND)
        refusals.clear()

    # -- in turn

    def _next(self, end: float) -> int:
        """The shard to use now; waits where none can be used."""
        while True:
            with self._lock:
                now = monotonic()
                due = self._turns.due(now)
                choice = self._turns.next(now)
                errors = self._turns.errors()
            if isinstance(choice, int):
                for number in due:
                    self._background.submit(self._probe, number)
                return choice
            for number in due:
                self._probe(number)  # here, since every thread may be waiting in this place
            if not due:
                self._raise_if_hopeless(errors, end - now)
                self._background.closed.wait(min(choice.seconds, LOOK_AROUND, end - now))

    def _raise_if_hopeless(self, errors: list[AllocatorError], left: float) -> None:
        if self._background.closed.is_set():
            raise AllocatorClosed
        if not any(isinstance(error, DatabaseUnavailable) for error in errors):
            raise errors[0].again()
        if left <= 0:
            raise all_down(errors)

    def _in_use(self) -> int:
        with self._lock:
            return len(self._handles) - len(self._turns.errors())

    def _fail(self, number: int, error: AllocatorError) -> None:
        with self._lock:
            was_used = self._turns.failed(number, error, monotonic())
        handle = self._handles[number]
        if was_used or not handle.failing:
            log.warning("shard %s is left alone: %s", handle.where, error)
        handle.failing = True

    def _others(self, handle: Handle, row: Shard) -> list[tuple[str, Shard]]:
        """What is known of the others, but for those that were not reached since the fleet grew, and are behind."""
        known = [(other.where, other.row) for other in self._handles if other.row and other is not handle]
        return [(where, other) for where, other in known if other.generation >= row.generation]

    def _probe(self, number: int) -> None:
        """Look whether a shard that failed can be used again."""
        handle = self._handles[number]
        try:
            row = handle.look()
            check_fleet([*self._others(handle, row), (handle.where, row)], self._name)
        except AllocatorError as error:
            self._fail(number, error)
            return
        except BaseException:
            self._fail(number, DatabaseUnavailable(f"{handle.where} was not probed to the end"))
            raise
        self._take(handle, row)
        with self._lock:
            self._turns.worked(number, monotonic())
        log.log(logging.WARNING if handle.failing else logging.INFO, "shard %s is used from now on", handle.where)
        handle.failing = False

    # -- the fleet

    def open(self) -> None:
        """Once: look at all shards that can be reached, and refuse what does not fit together."""
        if self._opened:
            return
        opening = Opening([handle.database for handle in self._handles], self._name, self._statement)
        rows = opening.rows()
        found = [(handle.where, row) for handle, row in zip(self._handles, rows, strict=False) if row]
        check_fleet(found, self._name)
        with self._lock:
            if self._opened:
                return
            for handle, row in zip(self._handles, rows, strict=False):
                handle.row = row
        for number, error in opening.errors.items():
            self._fail(number, error)
        for handle, row in list(zip(self._handles, rows, strict=False)):
            if row:
                self._take(handle, row)
        self._opened = True

    def _take(self, handle: Handle, row: Shard) -> None:
        """The row of a shard is this now. One that it says was replaced or left out is left alone."""
        with self._lock:
            handle.row = row
        self._learn(row)
        for number, other in enumerate(self._handles):
            if other.row and (newer := newer_place(other.row, row)):
                self._fail(number, superseded(other.where, newer))

    def _learn(self, row: Shard) -> None:
        """Where a row names shards that are new to us, they are used too."""
        missed = []
        with self._lock:
            keys = {other.row.key for other in self._handles if other.row}
            urls = {other.database.address.told for other in self._handles if not other.row}
            for member in row.members:
                if member.key in keys or member.url in urls:
                    continue
                try:
                    found = sibling(self.databases(), member.url)
                except InvalidArgument as error:
                    missed.append((member.url, error))
                    continue
                self._handles.append(Handle(found))
                self._turns.add(DatabaseUnavailable(f"{member.url} was not reached yet"), monotonic())
        for url, why in missed:
            self._miss(url, why)

    def _miss(self, url: str, error: InvalidArgument) -> None:
        if url not in self._missed:
            log.warning("the fleet has a shard that cannot be used from here: %s", error)
        self._missed[url] = error

    def lead(self) -> Database:
        """The shard that numbers nodes and leases workers for the whole fleet."""
        self.open()
        if not any(handle.leads for handle in self._handles):  # who draws nothing else would never look for it again
            for number, handle in enumerate(self._handles):
                if handle.row is None:
                    self._probe(number)
        if found := next((handle for handle in self._handles if handle.leads), None):
            return found.database
        raise DatabaseUnavailable(f"the shard with offset {LEAD} was not reached yet")

    def troubles(self) -> list[AllocatorError | None]:
        """Of each shard, why it is left alone, if it is."""
        with self._lock:
            return [state.error for state in self._turns.states]

    def opened(self) -> list[Database]:
        """All shards, as their rows say now. Raises where one cannot be used from here, as without its driver: what is
        done to some of them alone, as raising a tag, would be undone by the others."""
        self.open()
        for database in self.databases():
            if row := database.run(database.dialect.read_shard):
                self._learn(row)
        for why in self._missed.values():
            raise why.again()
        return self.databases()

    def databases(self) -> list[Database]:
        return [handle.database for handle in self._handles]

    def abandon(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.Lock()
        for state in self._turns.states:
            state.probing = False
        for database in self.databases():
            database.abandon()

    def close(self) -> None:
        for database in self.databases():
            database.close()
