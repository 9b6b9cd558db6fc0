"""Where the ids of an allocator come from: SQL databases, or a service that stands before them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allocator.errors import DatabaseUnavailable, InvalidSetting, InvalidTag
from allocator.generators.backend_protocol import Backend
from allocator.rules.fleet import STATEMENTS
from allocator.rules.hosts import Hosts
from allocator.runtime.worker_pool import Background
from allocator.schemes.checks import check_tag, quoted
from allocator.schemes.ticket import MAX_SHARDS

if TYPE_CHECKING:
    from allocator.fleet.fleet import Fleet

ATTEMPTS = 3
"""Each shard may use a third of the call's timeout."""


def fleet_of(
    given: list[Any],
    background: Background,
    fleet: str | None = None,
    statement: str | None = None,
    timeout: float = 5.0,
    shard_hosts: Hosts = (),
) -> Fleet:
    """The backend of these databases."""
    from allocator.database.store import Database  # imports SQLAlchemy, which `import allocator` must not
    from allocator.fleet.fleet import Fleet

    patience = timeout / (ATTEMPTS if len(given) > 1 else 1)
    databases = [Database(one, patience, shard_hosts) for one in given]
    return Fleet(databases, background, check_fleet(fleet), check_statement(statement), timeout)


@contextmanager
def databases_at(urls: Sequence[str], timeout: float, shard_hosts: Hosts = ()) -> Iterator[Fleet]:
    """For a question or two, and closed afterwards."""
    background = Background()
    fleet = fleet_of(list(urls), background, timeout=timeout, shard_hosts=shard_hosts)
    try:
        yield fleet
    finally:
        background.close(timeout)
        fleet.close()


def overdue(backend: Backend, seconds: float) -> DatabaseUnavailable:
    """The error of a call whose time is over, with the last one of a database as its cause."""
    troubles = backend.troubles()
    cause = next((error for error in troubles if error), None)
    late = "no shard answered" if len(troubles) > 1 else "the database did not answer"
    found = DatabaseUnavailable(f"{late} within {seconds:g} seconds" + (f"; the last error: {cause}" if cause else ""))
    found.__cause__ = cause
    return found


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
    urls = addresses(database)
    if not urls:
        if token is not None:
            raise InvalidSetting("a token is for a service, whose address begins with https:// or http://")
        return fleet_of(given, background, fleet, statement, timeout, shard_hosts)
    if fleet is not None or statement is not None or shard_hosts:
        raise InvalidSetting("fleet, tickets and shard_hosts are settings of the service, which has the databases")
    return Service(Servers(urls, token, timeout))


def chosen(database: Any, shards: Iterable[Any] | None) -> list[Any]:
    """The databases that were given, one way or the other."""
    if (database is None) == (shards is None):
        raise InvalidSetting("either a database or shards are needed, and not both")
    if shards is None:
        return [database]
    if isinstance(shards, str) or not isinstance(shards, Iterable):
        raise InvalidSetting(f"shards must be a list of databases, got {quoted(shards, 40)}")
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
        raise InvalidSetting(f"tickets must be {' or '.join(map(repr, STATEMENTS))}, got {quoted(tickets, 40)}")
    return str(tickets) if tickets else None
