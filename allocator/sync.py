"""The blocking face."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeVar

from allocator.backend import backend_of, overdue
from allocator.errors import DatabaseUnavailable, InvalidSetting, Uncopyable
from allocator.fleet.tags import Tags
from allocator.generators.backend_protocol import Backend
from allocator.generators.batching import Batching
from allocator.generators.meteor import MeteorSupply
from allocator.generators.sequence import Sequence, Sequences
from allocator.generators.snowflake import SnowflakeSupply
from allocator.generators.supply import Supply, Terms
from allocator.rules.column_limit import Column, max_step_for
from allocator.rules.failover import FailoverGap, gap_of
from allocator.rules.hosts import hosts_from
from allocator.runtime import forks
from allocator.runtime.waiting import wait_for
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import MAX_ID, check_seconds, check_tag, quoted
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.snowflake import SnowflakeSettings
from allocator.schemes.tag import DEFAULT_MAX_STEP, DEFAULT_STEP, Tag

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine


S = TypeVar("S")


def settings_of(given: S | None, kind: type[S]) -> S:
    if given is not None and not isinstance(given, kind):
        raise InvalidSetting(f"{kind.__name__} is needed, got {quoted(given)}")
    return kind() if given is None else given


class Allocator(Uncopyable):
    """Unique, increasing 64-bit ids for any number of tags, out of a SQL database.

        with Allocator("sqlite:///ids.db") as ids:
            ids.next_id("order")

    database: a URL (`sqlite:///…`, `postgresql+psycopg://…`, `mysql+pymysql://…`, `mariadb+pymysql://…`) or a
        SQLAlchemy `Engine`, of which the way to connect is used and never a connection or transaction; or the address
        of a service (`https://…`), or a list of addresses, of which another is tried when one fails.
    token: what the service lets us in with.
    shards: instead of a database several, which are used in turn: see `ticket`.
    shard_hosts: names of hosts, `*` and `?` for any characters ("db-*.internal"; several in a list or with commas). Of
        a fleet that grew, the shards on these hosts, and on those of the URLs given, are used with the same user and
        password; any other host gets no password, whatever the fleet's rows name.
    fleet: the name of the shards together, to be sure that these are the right ones; "main" for a new fleet.
    tickets: the statement that draws them, "replace" or "count"; by default that of the fleet, "replace" at first.
    create_missing: make a tag when it is used for the first time; otherwise `UnknownTag` is raised.
    step, max_step, limit: the settings of tags made that way: the least and the greatest number of ids a claim
        takes (1 to 100 million; at most a million by default, and less where the limit is low), and the greatest id
        (1 to 2**63 - 1; `JAVASCRIPT_MAX_ID` where browsers read it).
    failover_gap: of tags made that way, how many ids are skipped when another server goes on, as a promoted standby,
        since it may have forgotten claims. "auto" (the default) skips as many as the tag ever gave, and about 4 million
        at least; "refuse" raises `ServerReplaced` instead, until `Tags.repair`. A restart skips nothing.
    runway: how many seconds the ids in memory should last at the rate seen, should the database go away.
    timeout: how many seconds a call may wait for the database when no ids are in memory.
    meteor, snowflake: the formats of these ids, where they are not the default ones.

    Nothing is opened before the first call. Safe to use from several threads; after a fork the child starts anew.
    The scheme is the segment mode of Leaf, there named MaxValue: a row per tag, claimed a segment at a time.
    """

    __slots__ = (
        "__weakref__",
        "_backend",
        "_background",
        "_batching",
        "_meteor",
        "_sequences",
        "_serving",
        "_snowflake",
        "_template",
        "_terms",
    )

    _background_type: ClassVar[type[Background]] = Background
    _sequence_type: ClassVar[type[Sequence]] = Sequence
    """What an allocator is made of that needs no database, see `allocator.testing`."""

    def __init__(
        self,
        database: str | URL | Engine | Iterable[str] | None = None,
        *,
        token: str | None = None,
        shards: Iterable[str | URL | Engine] | None = None,
        shard_hosts: str | Iterable[str] | None = None,
        fleet: str | None = None,
        tickets: Literal["replace", "count"] | None = None,
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
        self._terms = Terms(
            bool(create_missing), check_seconds("runway", runway, 0.0), check_seconds("timeout", timeout, 0.05)
        )
        if max_step is None:
            max_step = max_step_for(limit, step, DEFAULT_MAX_STEP)
        self._template = Tag("template", 0, step, max_step, limit, failover_gap=gap_of(failover_gap)).checked()
        self._background = self._background_type()
        self._backend = self._watched(
            backend_of(
                database,
                shards,
                fleet,
                tickets,
                token,
                self._background,
                self._terms.timeout,
                hosts_from(shard_hosts),
            )
        )
        self._batching = Batching(self._backend, self._background)
        self._sequences = Sequences(self._new_sequence)
        self._serving = self._sequences.serving
        shared = (self._backend, self._background, self._terms)
        self._meteor = MeteorSupply(*shared, settings_of(meteor, MeteorSettings).checked(), owner=self)
        self._snowflake = SnowflakeSupply(*shared, settings_of(snowflake, SnowflakeSettings).checked(), owner=self)
        forks.register(self)

    def _watched(self, backend: Backend) -> Backend:
        """For a subclass that looks at what is asked of the database."""
        return backend

    def next_id(self, tag: str) -> int:
        """The next id of `tag`: from memory, or else from the database within `timeout` seconds.

        Raises `InvalidTag`, `UnknownTag`, `Exhausted`, `MaxValueWentBack`, `DatabaseUnavailable`, `DatabaseRefused`,
        `SchemaOutOfDate`, `SchemaDamaged` or `AllocatorClosed`.
        """
        try:
            return next(self._serving[tag])
        except (StopIteration, KeyError, TypeError):
            return self.sequence(tag)._next()

    def next_ids(self, tag: str, count: int) -> list[int]:
        """The next 1 to 10000 ids of `tag`, increasing."""
        return self.sequence(tag).next_ids(count)

    def reserve(self, tag: str, count: int) -> range:
        """One block of 1 to 10 million ids, claimed by this call: contiguous, or with shards of their step."""
        return self.sequence(tag).reserve(count)

    def sequence(self, tag: str) -> Sequence:
        """The handle of one tag, the fastest way to its ids; the same object for the same tag."""
        try:
            return self._sequences[tag]
        except TypeError:
            return self._sequences[check_tag(tag)]

    def _new_sequence(self, tag: str) -> Sequence:
        template = replace(self._template, name=tag)
        return self._sequence_type(
            template, self._backend, self._background, self._terms, self._sequences, self, self._batching
        )

    def _column_of(self, column: Any, dialect: Any) -> Column:
        """A column of SQLAlchemy's, as a database of this dialect has it."""
        from allocator.database.verbs.columns import mapped  # imports SQLAlchemy, which `import allocator` must not

        return mapped(column, dialect)

    def meteor(self) -> int:
        """The next meteor id, under a node that is registered in the database when the first one is asked for.

        Greater than the one before under one node; a new one is registered when the second field runs out. Errors
        as of `next_id`, and `NodeIdsExhausted` when no node number is left.
        """
        try:
            return next(self._meteor._values)
        except StopIteration:
            return self._meteor._next()

    def snowflake(self) -> int:
        """The next snowflake id, under a worker that is leased from the database together with a range of time.

        Greater than the one before, for one process. The lease is renewed in the background while ids are drawn.
        Errors as of `next_id`, and `NodeIdsExhausted` when all workers are leased.
        """
        supply = self._snowflake
        if monotonic() < supply.end:
            try:
                return next(supply._values)
            except StopIteration:
                pass
        return supply._next()

    def ticket(self, kind: str) -> int:
        """The next ticket of a type: one row's auto-increment value, drawn from the database by this call.

        kind: the type, formed as a tag. Of n shards, the r-th gives r, r + n, r + 2n, and so on; they are used in turn,
        and one that fails is left alone until it is back. Errors as of `next_id`, and `ShardMisconfigured`. The scheme
        is that of Flickr's ticket servers.
        """
        return wait_for(lambda: self._start_ticket(kind), self._background, self._terms.timeout, self._overdue)

    def _start_ticket(self, kind: str) -> Future[int]:
        return self._background.submit(self._backend.ticket, check_tag(kind), monotonic() + self._terms.timeout)

    def _overdue(self) -> DatabaseUnavailable:
        return overdue(self._backend, self._terms.timeout)

    @property
    def tags(self) -> Tags:
        """Administration: create, list, get and set tags."""
        tags: Tags = self._backend.tags(self._template)
        return tags

    def ping(self) -> None:
        """Ask the database whether ids can be drawn, and draw none: for readiness, or before the first request.

        One round trip. Of several shards one that answers is enough. Errors as of `next_id`.
        """
        wait_for(self._start_ping, self._background, self._terms.timeout, self._overdue)

    def _start_ping(self) -> Future[None]:
        return self._background.submit(self._backend.ping)

    def create_tables(self) -> None:
        """Create the tables or bring them up to date, as `allocator db upgrade` does: for tests and small set-ups.

        Blocks for as long as that takes. Raises `InvalidSetting` for a service, and errors as of `next_id`.
        """
        self._backend.create_tables()

    @contextmanager
    def use(self, other: Allocator) -> Iterator[None]:
        """Take ids, tickets and tags from where `other` has them until the block ends: for the tests of an application.

            with ids.use(MemoryAllocator()):
                session.add(Order())        # its default is ids.sequence("order"), and its id is 1

        Sequences that somebody holds, as the defaults of columns, follow. Afterwards all go on where they were, but for
        the piece of a segment that was being served. No other thread may draw while the block begins or ends.
        """
        before = self._backend
        cores = self._change(other._backend, {})
        try:
            yield
        finally:
            self._change(before, cores)

    def _change(self, backend: Backend, cores: Mapping[Supply, Any]) -> dict[Supply, Any]:
        self._backend = backend
        self._batching.change(backend)
        return {supply: supply._change(backend, cores.get(supply)) for supply in self._supplies()}

    def close(self) -> None:
        """Give up what is in memory and every connection. Further calls raise `AllocatorClosed`."""
        self._background.closed.set()
        self._retire()
        self._background.close(self._terms.timeout)
        self._retire()  # what a claim brought that was under way
        self._backend.close()

    def _supplies(self) -> list[Supply]:
        return [self._meteor, self._snowflake, *self._sequences.all()]

    def _retire(self) -> None:
        for supply in self._supplies():
            supply._retire()

    def after_fork(self) -> None:
        """Called in a forked child, before anything else runs there."""
        self._background.renew()
        self._batching.renew()
        self._sequences.renew()
        for supply in self._supplies():
            supply._renew()
        self._backend.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Allocator {self._backend.shown}>"
