"""Where the ids of an allocator come from: SQL databases, or a service that stands before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from allocator.errors import DatabaseUnavailable, InvalidSetting, InvalidTag
from allocator.fleet.tags import Tags
from allocator.generators.backend import Backend
from allocator.rules.fleet import STATEMENTS
from allocator.rules.hosts import Hosts
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import check_tag, shown
from allocator.schemes.layout import Layout
from allocator.schemes.residues import Seen
from allocator.schemes.segment import Claim
from allocator.schemes.snowflake import Lease, LeaseClaim
from allocator.schemes.tag import Tag
from allocator.schemes.ticket import MAX_SHARDS

ATTEMPTS = 3
"""Each shard may use a third of the call's timeout."""


class Databases:
    """The backend of one database, or of several that are shards of one fleet."""

    def __init__(
        self,
        given: list[Any],
        background: Background,
        fleet: str | None,
        statement: str | None,
        timeout: float,
        shard_hosts: Hosts = (),
    ) -> None:
        from allocator.database.store import Database  # imports SQLAlchemy, which `import allocator` must not
        from allocator.fleet.serving import Fleet

        patience = timeout / (ATTEMPTS if len(given) > 1 else 1)
        databases = [Database(one, patience, shard_hosts) for one in given]
        self.fleet = Fleet(databases, background, check_fleet(fleet), check_statement(statement), timeout)
        self.database = databases[0]
        self._source = self.fleet if len(databases) > 1 else self.database
        self.ticket = self.fleet.ticket
        self.close = self.fleet.close
        self.abandon = self.fleet.abandon

    @property
    def shown(self) -> str:
        return ", ".join(database.address.shown for database in self.fleet.databases())

    @property
    def files(self) -> list[str]:
        """Of embedded databases; a service has none here."""
        return [file for database in self.fleet.databases() if (file := database.address.file)]

    def open_segment(self, template: Tag, create: bool) -> Tag:
        return self._source.open_segment(template, create)

    def open_segments(self, templates: Sequence[Tag], create: bool) -> list[Tag]:
        return self._source.open_segments(templates, create)

    def claim_segments(self, claims: Mapping[str, Claim]) -> dict[str, range]:
        return self._source.claim_segments(claims)

    def claim_segment(self, name: str, size: int, seen: Seen, *, exact: bool = False) -> range:
        return self._source.claim_segment(name, size, seen, exact=exact)

    def register_node(self) -> int:
        return self._source.register_node()

    def lease_worker(self, claim: LeaseClaim, layout: Layout, epoch: int) -> Lease:
        return self._source.lease_worker(claim, layout, epoch)

    def tags(self, template: Tag) -> Tags:
        return Tags(self.serving, template)

    @property
    def is_alone(self) -> bool:
        """Whether one database was given, and no list of shards."""
        return self._source is self.database

    def _is_fleet(self) -> bool:
        """One that was given alone may be a shard of several."""
        return not self.is_alone or self.database.has_siblings()

    def first(self) -> Any:
        """The database that has what a fleet has only once."""
        return self.fleet.lead() if self._is_fleet() else self.database

    def serving(self) -> list[Any]:
        """All databases that serve these tags."""
        return self.fleet.opened() if self._is_fleet() else [self.database]


def overdue(backend: Backend, seconds: float) -> DatabaseUnavailable:
    """The error of a call whose time is over, with the last one of a database as its cause."""
    fleet = getattr(backend, "fleet", None)  # neither a service nor an allocator in memory has one
    troubles = fleet.troubles() if fleet else []
    cause = next((error for error in troubles if error), None)
    late = "no shard answered" if len(troubles) > 1 else "the database did not answer"
    found = DatabaseUnavailable(f"{late} within {seconds:g} seconds" + (f"; the last error: {cause}" if cause else ""))
    found.__cause__ = cause
    return found


@contextmanager
def databases_at(urls: Sequence[str], timeout: float, shard_hosts: Hosts = ()) -> Iterator[Databases]:
    """For a question or two, and closed afterwards."""
    background = Background()
    databases = Databases(list(urls), background, None, None, timeout, shard_hosts=shard_hosts)
    try:
        yield databases
    finally:
        background.close(timeout)
        databases.close()


def backend_of(
    database: Any,
    shards: Iterable[Any] | None,
    fleet: str | None,
    statement: str | None,
    token: str | None,
    background: Background,
    timeout: float,
    shard_hosts: Hosts,
) -> Backend:
    """What the arguments of an `Allocator` name."""
    if isinstance(database, Backend):
        return database  # as `allocator.testing` brings
    from allocator.remote.client import Service  # what asks a service imports more than all the rest
    from allocator.remote.http import Servers, addresses

    given = chosen(database, shards)
    if database is None and addresses(given[0]):
        raise InvalidSetting("shards are databases; the addresses of a service stand in first place, several as a list")
    named = addresses(database)
    if not named:
        if token is not None:
            raise InvalidSetting("a token is for a service, whose address begins with https:// or http://")
        return Databases(given, background, fleet, statement, timeout, shard_hosts)
    if fleet is not None or statement is not None or shard_hosts:
        raise InvalidSetting("fleet, tickets and shard_hosts are settings of the service, which has the databases")
    return Service(Servers(named, token, timeout))


def chosen(database: Any, shards: Iterable[Any] | None) -> list[Any]:
    """The databases that were given, one way or the other."""
    if (database is None) == (shards is None):
        raise InvalidSetting("either a database or shards are needed, and not both")
    if shards is None:
        return [database]
    if isinstance(shards, str) or not isinstance(shards, Iterable):
        raise InvalidSetting(f"shards must be a list of databases, got {shown(shards, 40)}")
    given = list(shards)
    if not 1 <= len(given) <= MAX_SHARDS:
        raise InvalidSetting(f"shards must be 1 to {MAX_SHARDS} databases, got {len(given)}")
    return given


def check_fleet(name: object) -> str | None:
    try:
        return None if name is None else check_tag(name)
    except InvalidTag as error:
        raise InvalidSetting(f"the name of a fleet is formed as a tag: {error}") from None


def check_statement(tickets: Any) -> str | None:
    if tickets not in (None, *STATEMENTS):
        raise InvalidSetting(f"tickets must be {' or '.join(map(repr, STATEMENTS))}, got {shown(tickets, 40)}")
    return str(tickets) if tickets else None
