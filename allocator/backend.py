"""Choose the backend of an allocator from its arguments: SQL databases, or a service in front of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.errors import DatabaseUnavailable, InvalidDatabase, InvalidSetting
from allocator.generators.backend_protocol import Backend
from allocator.runtime.threads import Background
from allocator.schemes.shared.argument_checks import quoted
from allocator.schemes.shared.residues import MAX_SLOTS
from allocator.schemes.slots import check_list

if TYPE_CHECKING:
    from allocator.fleet.fleet_backend import Alone, Fleet

S = TypeVar("S")

SHARES = 3
"""Of a call's timeout: a database of a fleet may use one."""


def fleet_of(databases: Sequence[Any], background: Background, timeout: float = 5.0) -> Alone | Fleet:
    """The backend for a database, or for several that are slots of a fleet; each is a URL, an engine or an address."""
    from allocator.database.address import address_of  # imports SQLAlchemy, which `import allocator` must not
    from allocator.database.store import Database
    from allocator.fleet.fleet_backend import Alone, Fleet

    if len(databases) == 1:
        return Alone(databases[0], timeout)
    addresses = [address_of(one) for one in databases]
    check_list([(one.shown, one.word) for one in addresses])
    return Fleet([Database(one, timeout / SHARES) for one in addresses], background, timeout)


def overdue(backend: Backend, seconds: float) -> DatabaseUnavailable:
    """The error of a call that reached its timeout; its cause is the latest error of a database."""
    troubles = backend.troubles()
    cause = next((error for error in troubles if error), None)
    late = "none of the fleet answered" if len(troubles) > 1 else "the database did not answer"
    why = f"the last error: {cause}" if cause else "it is away, or an open transaction locks what this call needs"
    error = DatabaseUnavailable(f"{late} within {seconds:g} seconds; {why}")
    error.__cause__ = cause
    return error


def backend_of(
    database: Any,
    shards: Iterable[Any] | None,
    token: str | None,
    background: Background,
    timeout: float,
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
        if token is not None:
            raise InvalidSetting("token is only for a service, whose address begins with https:// or http://")
        return fleet_of(databases, background, timeout)
    from allocator.remote.client import ServiceBackend  # imports more than a process with a database needs
    from allocator.remote.http import Servers

    return ServiceBackend(Servers(urls, token, timeout))


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
    if not 1 <= len(databases) <= MAX_SLOTS:
        raise InvalidSetting(f"shards must be 1 to {MAX_SLOTS} databases, got {len(databases)}")
    if isinstance(shards, Mapping):
        from allocator.database.address import address_in

        return [address_in(word, one) for word, one in shards.items()]
    return databases
