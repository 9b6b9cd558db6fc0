"""Choose the backend of an allocator from its arguments: SQL databases, or a service in front of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting, InvalidTag
from allocator.generators.backend_protocol import Backend
from allocator.rules.hosts import Hosts
from allocator.runtime.thread_pool import Background
from allocator.schemes.shared.argument_checks import check_tag, quoted
from allocator.schemes.ticket import MAX_SHARDS

if TYPE_CHECKING:
    from allocator.fleet.fleet_backend import Fleet

S = TypeVar("S")

ATTEMPTS = 3
"""Each shard may use a third of the call's timeout."""


def fleet_of(
    urls: list[Any],
    background: Background,
    fleet: str | None = None,
    timeout: float = 5.0,
    shard_hosts: Hosts = (),
) -> Fleet:
    """The backend for these databases, URLs or engines."""
    from allocator.database.store import Database  # imports SQLAlchemy, which `import allocator` must not
    from allocator.fleet.fleet_backend import Fleet

    shard_timeout = timeout / (ATTEMPTS if len(urls) > 1 else 1)
    databases = [Database(url, shard_timeout, shard_hosts) for url in urls]
    return Fleet(databases, background, check_fleet(fleet), timeout)


@contextmanager
def databases_at(urls: Sequence[str], timeout: float, shard_hosts: Hosts = ()) -> Iterator[Fleet]:
    """A fleet of these databases, closed at the end of the block."""
    background = Background()
    fleet = fleet_of(list(urls), background, timeout=timeout, shard_hosts=shard_hosts)
    try:
        yield fleet
    finally:
        background.close(timeout)
        fleet.close()


def overdue(backend: Backend, seconds: float) -> DatabaseUnavailable:
    """The error of a call that reached its timeout; its cause is the latest error of a database."""
    troubles = backend.troubles()
    cause = next((error for error in troubles if error), None)
    late = "no shard answered" if len(troubles) > 1 else "the database did not answer"
    why = f"the last error: {cause}" if cause else "it is away, or an open transaction locks what this call needs"
    error = DatabaseUnavailable(f"{late} within {seconds:g} seconds; {why}")
    error.__cause__ = cause
    return error


def backend_of(
    database: Any,
    shards: Iterable[Any] | None,
    fleet: str | None,
    token: str | None,
    headers: Callable[[], Mapping[str, str]] | None,
    background: Background,
    timeout: float,
    shard_hosts: Hosts,
) -> Backend:
    """The backend that the arguments of an `Allocator` name."""
    if isinstance(database, Backend):
        return database  # only `allocator.testing` passes one
    from allocator.remote.service_address import addresses

    databases = database_list(database, shards)
    if database is None and addresses(databases[0]):
        raise InvalidSetting("shards must be databases; pass the address of a service, or a list of them, as database")
    urls = addresses(database)
    if not urls:
        if token is not None or headers is not None:
            raise InvalidSetting(
                "token and headers are only for a service, whose address begins with https:// or http://"
            )
        return fleet_of(databases, background, fleet, timeout, shard_hosts)
    if fleet is not None or shard_hosts:
        raise InvalidSetting("fleet and shard_hosts cannot be set for a service; set them where it runs")
    from allocator.remote.client import ServiceBackend  # imports more than a process with a database needs
    from allocator.remote.http import Servers

    return ServiceBackend(Servers(urls, token, timeout, headers))


def settings_of(settings: S | None, kind: type[S]) -> S:
    if settings is not None and not isinstance(settings, kind):
        raise InvalidSetting(f"expected {kind.__name__}, got {quoted(settings)}")
    return kind() if settings is None else settings


def database_list(database: Any, shards: Iterable[Any] | None) -> list[Any]:
    """The databases that either argument names."""
    if database is not None and shards is not None:
        raise InvalidSetting("pass either database or shards, not both")
    if isinstance(shards, str) or not isinstance(shards, Iterable | None):
        raise InvalidSetting(f"shards must be a list of databases, got {quoted(shards, 40)}")
    databases = [database] if shards is None else list(shards)
    if any(one is None for one in databases):
        raise InvalidDatabase("no URL of a database was given, but None, as by an environment variable that is not set")
    if not 1 <= len(databases) <= MAX_SHARDS:
        raise InvalidSetting(f"shards must be 1 to {MAX_SHARDS} databases, got {len(databases)}")
    return databases


def check_fleet(name: object) -> str | None:
    try:
        return None if name is None else check_tag(name)
    except InvalidTag as error:
        raise InvalidSetting(f"the name of a fleet must be spelled like a tag: {error}") from None
