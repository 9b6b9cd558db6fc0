"""The blocking API."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from allocator.backend import backend_of, overdue, settings_of
from allocator.errors import DatabaseUnavailable, InvalidTag, Uncopyable
from allocator.fleet.tag_administration import Tags
from allocator.generators.backend_protocol import Backend
from allocator.generators.meteor import MeteorSupply
from allocator.generators.sequence import Sequence
from allocator.generators.snowflake import SnowflakeSupply
from allocator.generators.supply import Supply, Terms
from allocator.generators.worker_numbers import WorkerLease, Workers
from allocator.runtime import forks
from allocator.runtime.threads import Background, Waits, result_of, wait_for
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.shared.argument_checks import MAX_ID, check_seconds, check_tag, quoted
from allocator.schemes.snowflake import SnowflakeSettings
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP, FailoverGap, Tag, gap_of
from allocator.schemes.tag_column import max_step_for
from allocator.schemes.worker_number_lease import SECONDS

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

P = ParamSpec("P")
T = TypeVar("T")


class TagIsNoText(InvalidTag, TypeError):
    """A tag of another type, such as the context that SQLAlchemy passes to `default=ids.next_id`."""


class Allocator(Uncopyable):
    """Unique 64-bit ids for any number of tags, out of a SQL database. For their order see `Sequence`.

        with Allocator("sqlite:///ids.db") as ids:
            ids.next_id("order")

    database: a URL (`sqlite:///…`, `postgresql+psycopg://…`, `mysql+pymysql://…`, `mariadb+pymysql://…`); a
        SQLAlchemy `Engine`, whose connection settings are used, but none of its connections or transactions; or the
        address of a service (`https://…`), or a list of addresses, tried in turn when one fails.
    token: the bearer token for the service.
    shards: several databases in place of one, used in turn, which `allocator shards` has made a fleet: URLs that say
        their slot (`…?shard=7f3a91c2.2`), or a dict of slots to URLs or engines: `{"7f3a91c2.1": engine}`.
    create_missing: create a tag on first use; otherwise raise `UnknownTag`.
    step, max_step, limit: settings of tags created on first use. A claim takes `step` to `max_step` ids, each 1 to 100
        million; `max_step` is a million by default, and less where the limit is low. `limit` is the greatest id, 1 to
        2**63 - 1 (`JAVASCRIPT_MAX_ID` where browsers read it).
    failover_gap: of tags created on first use, the least number of ids to skip when the database server changes, since
        a promoted standby may lack claims; up to twice as many are skipped. "auto" (the default) is as many as the tag
        ever issued, at least about 4 million (less with a low limit), at most an eighth of those left. "refuse" raises
        `ServerReplaced` until `Tags.repair`. A restart skips nothing, if the server is durable and can be identified.
    runway: how many seconds the ids in memory should last at the present rate if the database fails.
    timeout: how many seconds a call may wait for the database when no ids are in memory.
    meteor, snowflake: the formats of these ids, where they are not the default ones.

    Connects on the first call. Safe to use from several threads; a forked child starts with nothing in memory.
    The scheme is the segment mode of Leaf, also known as MaxValue: a row per tag, claimed a segment at a time.
    """

    def __init__(
        self,
        database: str | URL | Engine | Iterable[str] | None = None,
        *,
        token: str | None = None,
        shards: Iterable[str | URL] | Mapping[str, str | URL | Engine] | None = None,
        create_missing: bool = True,
        step: int = DEFAULT_STEP,
        max_step: int | None = None,
        limit: int = MAX_ID,
        failover_gap: FailoverGap | None = None,
        runway: float = 60.0,
        timeout: float = 5.0,
        meteor: MeteorSettings | None = None,
        snowflake: SnowflakeSettings | None = None,
    ) -> None:
        runway, timeout = check_seconds("runway", runway, 0.0), check_seconds("timeout", timeout, 0.05)
        if max_step is None:
            max_step = max_step_for(limit, step, DEFAULT_MAX_STEP)
        self._template = Tag("template", 0, step, max_step, limit, failover_gap=gap_of(failover_gap)).checked()
        background = Background()
        backend = backend_of(database, shards, token, background, timeout)
        self._terms = terms = Terms(backend, background, bool(create_missing), runway, timeout, self)
        self._workers = Workers(terms, self._overdue)
        self._sequences: dict[str, Sequence] = {}
        self._serving: dict[str, Iterator[int]] = {}
        """The iterator of each tag, the fast path to an id."""
        self._meteor = MeteorSupply(terms, settings_of(meteor, MeteorSettings).checked())
        self._snowflake = SnowflakeSupply(terms, settings_of(snowflake, SnowflakeSettings).checked())
        forks.register(self)

    def next_id(self, tag: str) -> int:
        """The next id of `tag`, from memory or within `timeout` seconds from the database.

        Raises `InvalidTag`, `UnknownTag`, `Exhausted`, `MaxValueWentBack`, `ServerReplaced`, `ShardMisconfigured`,
        `DatabaseUnavailable`, `DatabaseRefused`, `AccessDenied`, `SchemaOutOfDate`, `SchemaDamaged`, `ForkedUnseen`,
        `ReentrantCall` or `AllocatorClosed`.
        """
        try:
            return next(self._serving[tag])
        except (StopIteration, KeyError, TypeError):
            return wait_for(self.sequence(tag)._attempts())

    def next_ids(self, tag: str, count: int) -> list[int]:
        """The next 0 to 10000 ids of `tag`, within one `timeout`."""
        return self.sequence(tag).next_ids(count)

    def reserve(self, tag: str, count: int) -> range:
        """One block of 1 to 10**13 ids, claimed by this call. In a fleet, its step is the number of slots."""
        return self.sequence(tag).reserve(count)

    def sequence(self, tag: str) -> Sequence:
        """The handle of one tag, the fastest way to its ids."""
        if not isinstance(tag, str):
            raise TagIsNoText(
                f"a tag must be a str, got {quoted(tag)}; the default of a column is ids.sequence('order').next_id"
            )
        if tag not in self._sequences:
            name = check_tag(tag)
            # In one step: a second object, of a thread or a signal handler, would be missed by `close` and by forks.
            self._sequences.setdefault(name, self._new_sequence(replace(self._template, name=name)))
        return self._sequences[tag]

    def _new_sequence(self, template: Tag) -> Sequence:
        return Sequence(template, self._terms, self._serving)

    def meteor(self) -> int:
        """The next meteor id. The first call registers a node in the database.

        Ids of one node increase; when its second field runs out, a new node is registered. Raises the errors of
        `next_id`, and `NodeIdsExhausted` when no node number is left.
        """
        try:
            return next(self._meteor._values)
        except StopIteration:
            return wait_for(self._meteor._attempts())

    def snowflake(self) -> int:
        """The next snowflake id. The first call leases a worker from the database.

        Ids of one process increase, unless its clock steps back by more than the lease. The lease is renewed in the
        background while ids are drawn. After a failover a new process has none for three leases, at least a minute.
        Raises the errors of `next_id`, and `NodeIdsExhausted` when all workers are leased.
        """
        supply = self._snowflake
        for value in supply._values if monotonic() < supply.end else ():
            return value
        return wait_for(supply._attempts())

    def worker(
        self, space: str, bits: int = 10, seconds: float = SECONDS, on_lost: Callable[[], object] | None = None
    ) -> WorkerLease:
        """Lease a number of a space for the ids of another library: `with ids.worker("billing") as worker:`.

        No other process has `worker.number`, 0 to 2**bits - 1, before the block ends or `worker.lost`. It is renewed
        in the background each third of `seconds`. `on_lost` is called once, on a thread of its own, even while the
        database hangs. Raises the errors of `next_id`, and `NodeIdsExhausted` when all numbers are held.
        """
        return WorkerLease(self._workers, space, bits, seconds, on_lost)

    def ticket(self, kind: str) -> int:
        """The next ticket of a type, drawn from the database by this call.

        kind: the type, spelled like a tag. On MySQL and MariaDB a ticket is the auto-increment value of a row, as of
        Flickr's ticket servers: all types of a database share one counter, so the tickets of one type have holes.
        Elsewhere each type counts by itself. In a fleet, slot k of S issues k, k + S, k + 2S, and so on. Its databases
        are used in turn; one that fails is skipped until it answers again. Raises the errors of `next_id`.
        """
        return wait_for(self._drawn_ticket(kind))

    def _drawn_ticket(self, kind: str) -> Waits[int]:
        return self._on_thread(self.backend.ticket, check_tag(kind), monotonic() + self._terms.timeout)

    def _on_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Waits[T]:
        """Run blocking `work` on a thread; discard its result after `timeout`."""
        background = self._terms.background
        start = partial(background.submit, work, *args, **kwargs)
        return result_of(start, background, self._terms.timeout, self._overdue)

    def _overdue(self) -> DatabaseUnavailable:
        return overdue(self.backend, self._terms.timeout)

    @property
    def backend(self) -> Backend:
        """The database, fleet or service that the ids come from."""
        return self._terms.backend

    @property
    def tags(self) -> Tags:
        """Administration: create, list, get and set tags."""
        return self.backend.tags(self._template)  # type: ignore[no-any-return]

    def ping(self) -> None:
        """Check that ids can be drawn, without drawing one: for readiness checks, or before the first request.

        One round trip. Of a fleet, one answer is enough. Raises the errors of `next_id`.
        """
        wait_for(self._on_thread(self.backend.ping))

    def create_tables(self) -> None:
        """Create or upgrade the tables, like `allocator db upgrade`: for tests and small setups.

        Has no timeout. Raises `InvalidSetting` for a service, and what `next_id` raises.
        """
        self.backend.create_tables()

    @contextmanager
    def use(self, other: Allocator) -> Iterator[None]:
        """Use the backend of `other` until the block ends: for the tests of an application.

            with ids.use(MemoryAllocator()):
                session.add(Order())        # its default is ids.sequence("order"), and its id is 1

        Existing `Sequence` objects, as in the defaults of columns, follow. Ids in memory are dropped where the block
        begins and ends: the next ones are claimed. No other thread may draw an id at these moments.
        """
        before = self.backend
        self._change(other.backend)
        try:
            yield
        finally:
            self._change(before)

    def _change(self, backend: Backend) -> None:
        self._terms.backend = backend
        for supply in self._supplies():
            supply._drop()

    def close(self) -> None:
        """Drop the ids in memory and close every connection. Further calls raise `AllocatorClosed`."""
        forks.catch_up()  # a child gives back nothing of its parent's
        # First, while the backend is open: it gives the numbers back.
        self._workers.close()
        self._terms.background.closed.end()
        self._retire()
        self._terms.background.close(self._terms.timeout)
        self._retire()  # a claim may have committed meanwhile
        self._snowflake.give_back()
        self.backend.close()

    def _supplies(self) -> list[Supply]:
        return [self._meteor, self._snowflake, *list(self._sequences.values())]

    def _retire(self) -> None:
        for supply in self._supplies():
            supply._retire()

    def after_fork(self) -> None:
        """Start with nothing in memory in a forked child; `forks` calls this before other code runs there."""
        self._terms.background.after_fork()
        self._workers.after_fork()
        for supply in self._supplies():
            supply._after_fork()
        self.backend.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.backend.shown}>"
