"""One database: runs each verb on a connection of its own, and knows what its next statement checks again.

It checks the schema, notes a failover, claims segments, draws tickets, numbers nodes, leases worker numbers, and
changes the rows of tags. Each verb is a statement or a transaction: see `verbs/`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from pathlib import Path
from random import uniform
from secrets import randbelow, randbits
from time import monotonic, perf_counter, sleep, time_ns
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, Pool
from sqlalchemy.exc import SQLAlchemyError

from allocator import __version__
from allocator.database import columns, schema
from allocator.database.address import Address, address_of
from allocator.database.connection import LEFT_OPEN, UNFORESEEN, Lent, engine_of, unforeseen
from allocator.database.dialect import Dialect, transaction
from allocator.database.driver_errors import REFUSALS, as_raised, has_code, is_answer, is_contended, is_stale, translate
from allocator.database.verbs import node_rows, segments, shard_row, tickets, worker_number_rows
from allocator.database.verbs.segments import Fence, Snapshot
from allocator.errors import (
    AllocatorClosed,
    AllocatorError,
    DatabaseUnavailable,
    InvalidSetting,
    MaxValueWentBack,
    NotCopyable,
    SchemaOutOfDate,
    ServerReplaced,
    UnknownTag,
)
from allocator.runtime.forks import catch_up, this_process
from allocator.runtime.threads import beside, takes_signals
from allocator.schemes.failover import beginning, crossing, moved, repaired, skipped
from allocator.schemes.shared.argument_checks import check_tag
from allocator.schemes.shared.residues import Residue, Seen, mark
from allocator.schemes.slots import ARGUMENT, Shard, check_word
from allocator.schemes.tag import FailoverGap, Tag, damaged, named, settle, unknown
from allocator.schemes.tag_column import Column
from allocator.schemes.ticket import REPLACE, RESERVED, check_ticket
from allocator.schemes.worker_number_lease import (
    NumberClaim,
    NumberLease,
    Space,
    check_clock,
    check_moved,
    choose,
    lost,
    spaces_of,
)

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("allocator")
claims_log = logging.getLogger("allocator.claims")
"""Logs a record per claim at the level DEBUG."""

CONTENDED_PAUSE = 0.005
"""Seconds before the first retry after a deadlock; the pause doubles, since many may be retrying."""
MAX_PAUSE, FILE_PAUSE = 0.2, 0.02
"""Seconds before the last retries; of a file, since nobody is told when it is free."""
ATTEMPTS = 20
"""Rounds before the call fails: each but the first lost a race with another process, or met a failover."""
MOVING_PAUSE, LONGEST_PAUSE = 0.02, 1.0
"""Seconds that a process waits at most while another one notes a failover, the first time and later ones: hundreds may
be waiting, and it needs the database."""
UNSTEADY = "the database keeps failing over, several servers answer in turn, or a client that notes it hangs; retry"
SKIPPED = "%s: skipped %s ids that may already be in use, since the database moved to another server, next id %s"

abandoned: list[Pool] = []
"""Pools inherited by a fork. Their connections are the parent's: kept, so that no garbage collection closes them."""


class Database:
    """One database, reached by connections of the allocator's own, or by the one that was lent.

    Safe to use from several threads. Nothing is opened before the first verb.
    """

    def __init__(self, database: object, timeout: float = 5.0, lent: Connection | None = None) -> None:
        """lent: the only connection, as of a migration. Its owner opened it, commits and closes it."""
        self.address: Address = address_of(database)
        self.shown, self.timeout = self.address.shown, timeout
        self.dialect = self.address.dialect
        self.engine: Engine = engine_of(self.address, timeout)
        self._lent = None if lent is None else Lent(lent, self.dialect, self.shown)
        self._ended: AllocatorError | None = None
        self._file, self._is_in_memory = self.address.file, self.address.is_in_memory
        self.may_create = self.address.word is None
        """Whether SQLite may make a missing file, which would be empty: not for a slot, nor for one that was there."""
        self._schema_seen = self._was_told = False
        self._fences: dict[str, Fence] = {}
        """What the next claim of each tag expects, its gap skipped: if the gap was not, no row matches."""
        self._shard: Shard | None = None
        """The row as a ticket needs it: the next one's statement checks it again."""
        self._tickets: dict[str, dict[Residue, int]] = {}
        """The greatest ticket of each type and residue. What is in it is replaced, and not changed."""
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Database {self.shown}>"

    def run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function on a connection of our own.

        A lost connection may hide a commit, and the verb is run again: `allocator.database.verbs` says why each may be.
        """
        if self._lent:
            return self._lent.run(verb, *args, **kwargs)
        catch_up()
        # A signal handler that raises inside of a statement, or of the pool's own code, would leave it half done.
        here = partial(self._run, verb, *args, **kwargs)
        return beside(here) if takes_signals() else here()

    def transact(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, in a transaction."""

        def within(connection: Connection, dialect: Dialect, *args: P.args, **kwargs: P.kwargs) -> T:
            with transaction(connection, dialect):
                return verb(connection, dialect, *args, **kwargs)

        return self.run(verb if self._lent else within, *args, **kwargs)  # a migration has a transaction

    def _run(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._ended:
            raise self._ended.again()
        is_new = self._file is not None and self._may_be_made()
        began, pause, was_asked = monotonic(), CONTENDED_PAUSE, False
        try:
            for attempt in count():
                try:
                    return self._run_once(began + self.timeout, verb, *args, **kwargs)
                except SQLAlchemyError as error:
                    passed = monotonic() - began
                    if is_contended(error, self.dialect) and passed + pause < self.timeout:
                        sleep(pause)
                        pause = min(2 * pause, FILE_PAUSE if self.dialect.embedded else MAX_PAUSE)
                    elif not was_asked and self._identity_was_refused(error):
                        was_asked = True
                    # A connection lost at once was stale in the pool. One lost later: the server is in trouble.
                    elif attempt or not is_stale(error) or passed > self.timeout / 2:
                        raise translate(error, self.dialect, self.shown, passed) from error
        finally:
            if is_new:  # also where the verb failed
                self._tell_made()
        raise AssertionError("unreachable")

    def _run_once(
        self, end: float, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        alone = self.dialect.alone(self._file, end) if self.dialect.embedded else nullcontext()
        with alone, self._connect() as connection:
            info = connection.info
            spoken: Dialect = info.get("dialect", self.dialect)
            info.get("warnings", []).clear()
            try:
                result = verb(connection, spoken, *args, **kwargs)
            except BaseException as error:
                # A MemoryError, or an exception sent to this thread, may have left a statement under way, whose answer
                # the next one would read. A database in memory waits for none, and would end with its connection.
                if not (is_answer(error) or self._is_in_memory):
                    connection.invalidate(error)
                raise as_raised(error)  # noqa: B904  the error itself, unless SQLAlchemy has wrapped it
            # Where the commit is not proven, what the verb claimed is burnt.
            if spoken.leaves_open(connection.connection.dbapi_connection):
                connection.invalidate()
                raise DatabaseUnavailable(LEFT_OPEN)
            if warnings := info.get("warnings"):
                raise DatabaseUnavailable(f"the commit came with a warning, so what it claimed is burnt: {warnings[0]}")
            self.may_create = False
            return result

    def _connect(self) -> Connection:
        try:
            return self.engine.connect()
        except (AllocatorError, TimeoutError):  # an alarm of the caller's may raise the latter
            raise
        except UNFORESEEN as error:
            raise unforeseen(error, self.shown) from error

    def _identity_was_refused(self, error: SQLAlchemyError) -> bool:
        """Whether a server refused to identify itself, and a statement that asks for less was found."""
        if not has_code(error, REFUSALS, self.dialect):
            return False
        is_found = False
        with suppress(SQLAlchemyError):
            end = monotonic() + self.timeout
            is_found = self._run_once(end, lambda connection, dialect: self.dialect.find_identity(connection))
        if is_found:
            self.engine.dispose()  # a connection keeps what was known when it was opened
        return is_found

    def _may_be_made(self) -> bool:
        """Whether the file is missing. Raises if it may not be made."""
        is_missing = self.is_missing()
        if is_missing and not self.may_create:
            raise DatabaseUnavailable(f"there is no file {self._file}; check the path, or put it back")
        return is_missing

    def _tell_made(self) -> None:
        if not self.is_missing():
            with suppress(Exception):  # a failing handler of the user's must not cost what the verb returns
                log.warning(
                    "made a new SQLite database at %s: its ids begin at 1; if there was one before, stop and put it "
                    "back",
                    os.path.realpath(str(self._file)),
                )

    def is_missing(self) -> bool:
        try:
            return self._file is not None and not Path(self._file).exists()
        except OSError:
            return False  # the folder may not be entered, as the driver says better

    def close(self) -> None:
        self._ended = AllocatorClosed()
        self.engine.dispose()

    def abandon(self) -> None:
        """In a forked child: drop the connections without closing them, since they are the parent's."""
        self._lock = threading.Lock()
        if self._is_in_memory:
            self._ended = self._ended or NotCopyable(
                "a database in memory cannot be used after a fork, since the parent has it: make another Allocator in "
                "the child, or use a file, as in sqlite:///ids.db"
            )
        abandoned.append(self.engine.pool)
        if given := self.address.pool:
            abandoned.append(given)
            self.address = replace(self.address, pool=given.recreate())
        self.engine = engine_of(self.address, self.timeout)  # a thread of the parent may hold a lock of the old pools

    # ---- what this process knows of the database

    def snapshot(self, name: str = "") -> Snapshot:
        """Fetch the rows, with that of the tag `name`.

        Looks at the schema if a table is missing, or at another revision. An embedded database makes its tables.
        """
        try:
            found = self.run(segments.fetch_snapshot, self.shown, name, not self._schema_seen)
        except SchemaOutOfDate:
            self._check_schema()
            found = self.run(segments.fetch_snapshot, self.shown, name, False)
        self._schema_seen = True
        return found

    def on_tables(self, verb: Callable[Concatenate[Connection, Dialect, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """As `run`, for a verb that may be the first one: looks at the schema as `snapshot` does."""
        try:
            return self.run(verb, *args, **kwargs)
        except SchemaOutOfDate:
            self._check_schema()
            return self.run(verb, *args, **kwargs)

    def _check_schema(self) -> None:
        """Raise `SchemaOutOfDate` if tables for ids are missing. An embedded database makes them."""
        try:
            self.run(schema.check, self.shown)
        except SchemaOutOfDate:
            if not self.dialect.embedded:
                raise
            self.upgrade_schema()

    def read_row(self) -> Shard:
        """The shard's row, whatever server wrote it; one that says nothing where it was not made yet."""
        return self.on_tables(shard_row.fetch) or Shard()

    def check_slot(self, row: Shard | None) -> None:
        if self.address.word:
            check_word(self.shown, self.address.word, row or Shard())

    def check_owner(self) -> None:
        """Raise where this user may not write the shard's row, or the server does not say which one it is."""
        self.on_tables(shard_row.check_owner)

    def upgrade_schema(self) -> None:
        if self._lent:
            raise SchemaOutOfDate(f"{self.shown} lacks tables of the allocator; run: allocator db upgrade")
        self.run(schema.upgrade, self.shown, self.timeout)
        # Before the first id: else a failover could forget the row with the ids.
        self.run(shard_row.begin_alone, self.shown)
        self.settled_snapshot()

    def settled_snapshot(self, name: str = "") -> Snapshot:
        """Fetch the rows on the server run that they name. If the database has moved, the move is written first.

        Raises `ShardMisconfigured` where the database is not the slot that its URL says.
        """
        end, pause = monotonic() + self.timeout, MOVING_PAUSE
        for _ in range(ATTEMPTS):
            found = self.snapshot(name)
            if not found.is_made:
                self.run(shard_row.begin_alone, self.shown)
            elif found.shard.move.run == found.run:
                self.check_slot(found.shard)
                self._tell(found.shard, found.numbering)
                return found
            elif not self.write_move(found):
                if monotonic() + pause > end:
                    break
                sleep(uniform(0.0, pause))  # noqa: S311  # no secret
                pause = min(2 * pause, LONGEST_PAUSE)
        raise DatabaseUnavailable(UNSTEADY)

    def mark_restored(self) -> None:
        """Move the database as after a failover: an operator knows of forgotten ids that nothing else shows."""
        for _ in range(ATTEMPTS):
            found = self.snapshot()
            if not found.is_made:
                raise shard_row.missing(self.shown)
            if self.write_move(found, waits=True):
                return
        raise DatabaseUnavailable(UNSTEADY)

    def write_move(self, found: Snapshot, *, waits: bool = False) -> bool:
        """Write a move; False if another process did, or does."""
        if self._lent:  # to write it takes connections of our own
            raise ServerReplaced(
                f"the tag was not made: {self.shown} moved to another server, and ids of the tag may be forgotten "
                "there; run: allocator db upgrade"
            )
        before = found.shard
        after = moved(before.move, before.residue, found.run, randbits(63), found.at, time_ns() // 1_000_000)
        if not self.run(shard_row.move, before, after, skipped(found.at, before.residue), waits):
            return False
        log.warning(
            "%s moved to another server (a promoted standby, or a MariaDB in a new container without a fixed "
            "hostname), or was restored: each tag skips ids that may already be in use; the server was %s and is %s",
            self.shown,
            before.move.run,
            after.run,
        )
        return True

    def ping(self) -> None:
        self.check_slot(self.snapshot().shard)

    def _tell(self, shard: Shard, server: Residue) -> None:
        """Log, once, what an operator should change, though nothing is wrong yet."""
        if self._was_told:
            return
        self._was_told = True
        if shard.fleet and not self.address.word:
            log.warning(
                "%s is slot %s, and its URL does not say so: add ?%s=%s, so that no copy or older state is used in its "
                "place",
                *(self.shown, shard.word, ARGUMENT, shard.word),
            )
        if shard.residue.step == 1 and server.step > 1:
            log.warning(
                "%s has auto_increment_offset = %d and auto_increment_increment = %d, as one of %d servers: each gives "
                "the same ids, unless all are slots of one fleet; see: allocator shards make --help",
                *(self.shown, *server, server.step),
            )

    # ---- claims and tickets

    def open_segment(self, template: Tag, create: bool) -> Tag:
        """Fetch the row of a tag. A missing one is made from `template` where `create` allows it."""
        now = self.settled_snapshot(template.name)
        if now.tag is None and create:
            now = self._made(template, now)[1]
        tag = now.tag
        if tag is None:
            raise unknown(template.name)
        if tag.move == now.shard.move.key:
            self._fences[tag.name] = fence_of(tag, now)
        return tag

    def _made(self, template: Tag, now: Snapshot | None, known: Shard | None = None) -> tuple[bool, Snapshot]:
        """Make a tag, above ids that a failover may have forgotten. Returns whether it is new.

        known: the row when somebody chose where it starts. That start is written, unless a failover came between.
        """
        first = None
        for _ in range(ATTEMPTS):
            now = now or self.settled_snapshot(template.name)
            if now.tag:
                return False, now
            shard = now.shard
            first = first or shard.move
            if known:
                check_unmoved(known, shard, template.name)
            begun = template if known else beginning(template, shard.move.first_value, shard.residue.step == 1)
            if self.transact(segments.make, begun, shard):
                return True, now._replace(tag=replace(begun, residue=shard.residue, move=shard.move.key))
            last, now = shard.move, None
        if last != first:
            raise DatabaseUnavailable(UNSTEADY)
        raise damaged(template.name, f"no row can be made with max_value {begun.max_value} and limit {begun.limit}")

    def has_read(self, name: str) -> bool:
        return name in self._fences

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        """Claim `size` ids above those `seen`; fewer, if no more remain and they need not be `exact`."""
        began, fence = perf_counter(), self._fences.get(name)
        for _ in range(ATTEMPTS):
            # Step 0: a deletion of the tag had closed the row when it was read.
            if fence and fence.residue.step:
                low = mark(seen, fence.residue)
                last = self.run(segments.claim, name, size, fence, low)
                if last is not None:
                    found = fence.residue.ids(last, size)
                    if found[0] <= low:
                        raise damaged(name, f"a claim of {size} ids above {low} returned {last}")
                    if fence.skip:
                        log.warning(SKIPPED, named(name), f"{fence.skip:,}", f"{found[0]:,}")
                    if claims_log.isEnabledFor(logging.DEBUG):
                        log_claim(name, found, began)
                    return found
            now = self.settled_snapshot(name)
            tag, fence = now.tag, None
            if tag is not None:
                fence = fence_of(tag, now)
                tag = replace(tag, max_value=tag.max_value + fence.skip)
                # As the row is after a claim that skips the gap. If none does, the next call matches no row, and asks.
                self._fences[name] = fence._replace(row_move=fence.shard_move, skip=0)
            size = settle(tag, name, size, seen, exact)
        raise DatabaseUnavailable(f"{named(name)}: every claim lost a race, near its limit or to failovers; try again")

    def ticket(self, kind: str, end: float) -> int:
        """Draw the next ticket of a type, above those that this process has seen, within our own timeout."""
        for _ in range(ATTEMPTS):
            known = self._shard or self.settled_snapshot().shard
            seen = self._tickets.get(kind, {})
            drawn = self._ticket(check_tag(kind), known, seen)
            self._shard = None if drawn is None else known
            if drawn is not None:
                with self._lock:  # another thread may have seen a greater one
                    seen = self._tickets.get(kind, {})
                    self._tickets[kind] = {**seen, known.residue: max(drawn, seen.get(known.residue, 0))}
                return drawn
        raise DatabaseUnavailable(UNSTEADY)

    def _ticket(self, kind: str, known: Shard, seen: Seen) -> int | None:
        """Draw a ticket; None if the shard's row is not as `known`. A ticket that was drawn is burnt then."""
        if known.tickets == REPLACE:
            drawn = self.run(tickets.draw, kind, known)
            return None if drawn is None else check_ticket(drawn, known.residue, max(seen.values(), default=0))
        name = RESERVED + kind
        if name not in self._fences:
            self._fences[name] = Fence(known.residue, known.move.key, known.move.key, known.move.run)
        try:
            claimed = self.claim_segment(name, 1, seen)
            return claimed[0] if claimed.step == known.residue.step else None
        except UnknownTag:
            pass
        except MaxValueWentBack:
            # A row that is forgotten is made again only by a move since, and above all that this process saw.
            now, move = self.settled_snapshot(name), self._fences[name].shard_move
            if now.tag or move == now.shard.move.key or now.shard.move.first_value < max(seen.values()):
                raise
        self._made(Tag(name, step=1, max_step=1), None)
        return None

    # ---- nodes and worker numbers

    def register_node(self) -> int:
        """A new node number, for this process."""
        now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
        for _ in range(ATTEMPTS):
            shard = self.settled_snapshot().shard
            number = self.run(node_rows.register, *this_process(), __version__, now, shard)
            if number is not None:
                return number
        raise DatabaseUnavailable(UNSTEADY)

    def lease_number(self, claim: NumberClaim) -> NumberLease:
        """Lease a free number of a space. Raises `NodeIdsExhausted`, and `InvalidSetting` by settings or clock."""
        for attempt in range(ATTEMPTS):
            shard = self.settled_snapshot().shard
            at, rows = self.run(worker_number_rows.fetch, claim.space)
            check_clock(claim, at)
            check_moved(shard.move.at, claim, at)
            chosen = choose(rows, claim, shard.residue, at, 1 << min(attempt, 10), randbelow(1 << 16))
            if self.run(worker_number_rows.take, chosen, claim, shard):
                number = chosen if isinstance(chosen, int) else chosen.number
                return NumberLease(claim.space, number, claim.holder, claim.length_ms)
        raise DatabaseUnavailable(f"every free number of space {claim.space!r} was taken by another process first")

    def renew_number(self, lease: NumberLease, wall_ms: int) -> None:
        """Raises `LeaseLost`: see `worker_number_rows.renew`."""
        if not self.run(worker_number_rows.renew, lease, wall_ms):
            raise lost(lease)

    def release_number(self, lease: NumberLease, used_ms: int) -> None:
        """Give a number back. `used_ms` is the last millisecond of the wall clock in which it may have been used."""
        if not self.run(worker_number_rows.release, lease, used_ms):
            raise lost(lease)

    def worker_spaces(self) -> list[Space]:
        """Who holds which number."""
        at, rows = self.on_tables(worker_number_rows.fetch_all)
        return spaces_of(rows, self.read_row().residue, at)

    # ---- the rows of tags

    def repair_segment(self, tag: Tag, above: int | None, known: Shard) -> None:
        """Raise a tag, and write the key of the last move into its row.

        known: the row when somebody chose `above`.
        """
        for _ in range(ATTEMPTS):
            now = self.settled_snapshot(tag.name)
            if above is not None:
                check_unmoved(known, now.shard, tag.name)
            if now.tag and self.run(segments.repair, now.tag, repaired(now.tag, above, now.at), now.shard):
                return
        raise InvalidSetting(f"tag {tag.name!r} was changed meanwhile; look at it and try again")

    def fetch_tag(self, name: str) -> Tag | None:
        found = self.snapshot(name)
        self.check_slot(found.shard)
        return found.tag

    def settled_shard(self) -> Shard:
        return self.settled_snapshot().shard

    def fetch_page(self, after: str, most: int) -> list[Tag]:
        return self.on_tables(segments.fetch_page, after, most)

    def create_tag(self, tag: Tag, known: Shard | None = None) -> Shard | None:
        """Make a tag, above ids that it may have given. Returns the row that lists the slots, as at this moment; None
        if there is such a tag.

        known: the row when somebody chose where the tag starts.
        """
        is_new, now = self._made(tag, None, known)
        return now.shard if is_new else None

    def last_given(self, tag: Tag) -> int:
        """The greatest id that a tag may have given, whatever a failover has forgotten. Raises `ServerReplaced`.

        tag: its row, or that of another slot where it is missing.
        """
        if tag.max_value >= tag.limit:
            return tag.max_value
        now = self.settled_snapshot(tag.name)
        if now.tag is None:
            return beginning(tag, now.shard.move.first_value, now.shard.residue.step == 1).max_value
        return now.tag.max_value + fence_of(now.tag, now).skip

    def change_tag(self, name: str, changes: Mapping[str, FailoverGap]) -> bool:
        return self.run(segments.change, name, changes)

    def start_tag(self, fresh: Tag, changes: Mapping[str, FailoverGap], known: Shard) -> Shard | None:
        """Change a tag, or make it where it is missing. Returns the row that lists the slots, as at this moment; None
        if the change is not valid any more.

        known: the row when somebody chose where the tag goes on.
        """

        def change(shard: Shard) -> bool:
            check_unmoved(known, shard, fresh.name)
            return self.transact(segments.make_or_change, fresh, changes, shard)

        return self._of_slot(change)

    def close_tag(self, tag: Tag) -> Shard | None:
        """Close a tag, which gave nothing above its `max_value`; None if it gave more."""
        return self._of_slot(lambda shard: self.transact(segments.close, tag, shard))

    def reopen_tag(self, tag: Tag) -> Shard | None:
        return self._of_slot(lambda shard: self.transact(segments.reopen, tag, shard))

    def _of_slot(self, change: Callable[[Shard], bool]) -> Shard | None:
        """Make a change under the shard's row; None if it is refused though that row stays as it is."""
        shard = self.settled_snapshot().shard
        for _ in range(ATTEMPTS):
            if change(shard):
                return shard
            before, shard = shard, self.settled_snapshot().shard
            if shard == before:
                return None
        raise DatabaseUnavailable(UNSTEADY)

    def remove_tag(self, name: str) -> bool:
        """Remove a tag that is closed; False if it is open again."""
        return self.run(segments.remove, name)

    def read_column(self, name: str) -> Column:
        return self.run(columns.read, name)


def check_unmoved(known: Shard, now: Shard, name: str) -> None:
    """Raise where the database has moved since somebody chose where a tag starts: they knew another one."""
    if now.move != known.move:
        raise InvalidSetting(  # which no client sends again, or to another service
            f"the database moved to another server meanwhile, and tag {name!r} was left as it is; it may have given "
            "ids that are forgotten: look where they ended, and try again"
        )


def log_claim(name: str, ids: range, began: float) -> None:
    with suppress(Exception):  # a failing handler of the user's must not burn the claim
        about = {"tag": name, "size": len(ids), "ms": 1000 * (perf_counter() - began)}
        text = "claimed tag=%s first=%d last=%d step=%d"
        claims_log.debug(text, name, ids[0], ids[-1], ids.step, extra=about)


def fence_of(tag: Tag, now: Snapshot) -> Fence:
    """How a tag's next claim goes on. Raises `ServerReplaced` if it may not."""
    move = now.shard.move
    skip = 0 if tag.move == move.key else crossing(tag, now.at)
    return Fence(tag.residue, tag.move, move.key, move.run, skip)
