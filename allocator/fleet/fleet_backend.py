"""The backend of a database, and of several that are slots of one fleet: used in turn, without those that fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import TypeVar

from allocator.database.store import Database
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseRefused,
    DatabaseUnavailable,
    InvalidTag,
    LeaseLost,
    MaxValueWentBack,
    SchemaDamaged,
    SchemaOutOfDate,
    ShardMisconfigured,
)
from allocator.fleet.rotation import Rotation
from allocator.fleet.tag_administration import Tags
from allocator.runtime.threads import Background
from allocator.schemes.shared.residues import Seen
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease

T = TypeVar("T")

log = logging.getLogger("allocator")

PART_OF_TIMEOUT = 0.9
"""A claim or draw ends before its caller's timeout, so that the caller learns the reason of a failure."""
PAUSE, LONGEST_PAUSE = 0.05, 0.5
"""Seconds that a call waits before it tries again, while all databases fail: until the next probe, within these."""

FAULTS = (DatabaseUnavailable, DatabaseRefused, SchemaDamaged, SchemaOutOfDate, ShardMisconfigured)
"""Errors of a database, which is not used until it is sound. After others, as of a tag that it may not give after a
failover, another database is tried for this call alone."""
ENDS = (AllocatorClosed, InvalidTag)
"""Errors that every database would raise."""


class OfDatabases:
    """What a backend of one database does as that of several does."""

    def databases(self) -> Sequence[Database]:
        raise NotImplementedError

    @property
    def files(self) -> list[str]:
        """Those of embedded databases."""
        return [file for database in self.databases() if (file := database.address.file)]

    def tags(self, template: Tag) -> Tags:
        return Tags(self.databases, template)

    def create_tables(self) -> None:
        for database in self.databases():
            database.upgrade_schema()


class Alone(OfDatabases, Database):
    """The only database of an allocator, which may be a slot of a fleet. Fulfils `Backend`."""

    def databases(self) -> list[Database]:
        return [self]

    def troubles(self) -> list[AllocatorError | None]:
        return []


class Fleet(OfDatabases):
    """Fulfils `Backend`. Safe to use from several threads. Nothing is opened before the first call.

    A database issues nothing before it is known to be the slot that its URL says; one that is another is left out.
    """

    def __init__(self, databases: Sequence[Database], background: Background, timeout: float) -> None:
        self._databases, self._background, self._timeout = databases, background, timeout
        self._rotation = Rotation(len(databases))
        self._lock = threading.Lock()
        self._templates: dict[str, tuple[Tag, bool]] = {}
        self._slots = 0
        """How many slots the fleet has; 0 until that is read."""

    @property
    def shown(self) -> str:
        return ", ".join(database.shown for database in self._databases)

    def databases(self) -> Sequence[Database]:
        return self._databases

    def ticket(self, kind: str, end: float) -> int:
        """Draw the next ticket of a type from the next database, before `end`."""
        # A row that went back stops a tag, since ids in memory may be from that database. A ticket is drawn elsewhere.
        return self._act(lambda one: one.ticket(kind, end), end - (1 - PART_OF_TIMEOUT) * self._timeout, stops=ENDS)

    def open_segment(self, template: Tag, create: bool) -> Tag:
        tag = self._act(lambda one: one.open_segment(template, create))
        self._templates[tag.name] = (template, create)
        return tag

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        def claim(one: Database) -> range:
            # One that was away when the tag was opened has not read its row.
            if not one.has_read(name):
                one.open_segment(*self._templates[name])
            return one.claim_segment(name, size, seen, exact=exact)

        return self._act(claim)

    def register_node(self) -> int:
        return self._act(Database.register_node)

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        return self._act(partial(Database.lease_number, claim=claim))

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        self._owner(lease).renew_number(lease, wall_ms)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        self._owner(lease).release_number(lease, used_ms)

    def _owner(self, lease: NumberLease) -> Database:
        """The database that leased the number: numbers say their slot."""
        self._slots = slots = self._slots or self._act(Database.settled_shard).residue.step
        for database in self._databases:
            if database.address.word and database.address.word.slot == lease.number % slots + 1:
                return database
        raise LeaseLost(
            f"number {lease.number} of space {lease.space!r} is of a slot that is not among these databases"
        )

    def ping(self) -> None:
        self._act(Database.ping)

    def _act(
        self,
        act: Callable[[Database], T],
        end: float | None = None,
        stops: tuple[type[AllocatorError], ...] = (*ENDS, MaxValueWentBack),
    ) -> T:
        """Act on the next database. After a fault of that one act on another, until `end`; after `stops` on none."""
        end = monotonic() + PART_OF_TIMEOUT * self._timeout if end is None else end
        refusals: dict[int, AllocatorError] = {}
        while True:
            number = self._next()
            try:
                return act(self._databases[number])
            except stops:
                raise
            except FAULTS as error:
                self._fail(number, error)
                if monotonic() >= end:
                    raise
            except AllocatorError as error:  # the database is sound and refuses this request
                refusals[number] = error
                if len(refusals) >= len(self._databases) - len(self._errors()):
                    raise

    def _next(self) -> int:
        """The next database. While none can be used, raises an error that asks for a pause."""
        while True:
            with self._lock:
                now = monotonic()
                choice = self._rotation.next(now)
                # One at a time on this thread: an exception from a hook would leave the others to nobody for ever.
                due = self._rotation.due(now, len(self._databases) if isinstance(choice, int) else 1)
            if isinstance(choice, int):
                for number in due:
                    self._background.submit(self._probe, number)
                return choice
            for number in due:
                self._probe(number)  # on this thread: all threads of the pool may be waiting here
            errors = self._errors()
            if not due and len(errors) == len(self._databases):  # else one answers again since
                raise self._unusable(errors, choice.seconds)

    def _unusable(self, errors: Sequence[AllocatorError], seconds: float) -> AllocatorError:
        if self._background.closed.ended:
            return AllocatorClosed()
        if not any(isinstance(error, DatabaseUnavailable) for error in errors):
            return errors[0].again()
        error = DatabaseUnavailable(f"no database of the fleet can be used: {'; '.join(map(str, errors))}")
        error.pause = min(max(PAUSE, seconds), LONGEST_PAUSE)
        return error

    def _fail(self, number: int, error: AllocatorError) -> None:
        with self._lock:
            was_used = self._rotation.failed(number, error, monotonic())
        if was_used:
            log.warning("stopped using %s: %s", self._databases[number].shown, error)

    def _probe(self, number: int) -> None:
        """Use a database again if it is sound."""
        database = self._databases[number]
        try:
            database.settled_shard()
        except AllocatorError as error:
            self._fail(number, error)
            return
        except BaseException:
            self._fail(number, DatabaseUnavailable(f"{database.shown} was not probed: the probe was interrupted"))
            raise
        with self._lock:
            self._rotation.worked(number, monotonic())
        log.warning("using %s again", database.shown)

    def _errors(self) -> list[AllocatorError]:
        return [error for error in self.troubles() if error]

    def troubles(self) -> list[AllocatorError | None]:
        """The error of each database that is not used; None for the others."""
        return [state.error for state in self._rotation.states]  # no lock: a signal handler may ask too

    def abandon(self) -> None:
        """After a fork, in the child."""
        self._lock = threading.Lock()
        for state in self._rotation.states:
            state.probing, state.probe_at = False, 0.0
        for database in self._databases:
            database.abandon()

    def close(self) -> None:
        for database in self._databases:
            database.close()
