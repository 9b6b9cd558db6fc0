"""`examine`: find what could repeat ids or stop them, in databases and their configuration. Changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from allocator.database.store import Database
from allocator.doctor.examination import examine_database
from allocator.doctor.fleet_rules import of_fleet
from allocator.doctor.tag_rules import of_formats
from allocator.errors import InvalidSetting
from allocator.remote.client import ServiceBackend
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding, Severity, at, in_order, is_healthy
from allocator.schemes.slots import check_list
from allocator.schemes.snowflake import SnowflakeSettings

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from allocator.aio import AsyncAllocator
    from allocator.sync import Allocator

    One = str | URL | Engine

__all__ = ["DANGER", "NOTE", "OUTAGE", "Finding", "Severity", "examine", "is_healthy"]


def examine(
    database: One | Allocator | AsyncAllocator | Sequence[One],
    *,
    timeout: float = 5.0,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Examine a database, or all slots of a fleet. Returns the findings, the worst first.

    database: a URL, an engine, several of these, or an allocator, whose meteor and snowflake formats are checked too.
        Opens new connections and closes them.
    timeout: seconds for each query. A failed query yields a note.
    clock: this machine's clock, in seconds since 1970.

    Raises `InvalidDatabase` for anything else, and `InvalidSetting` for an allocator that uses a service.
    """
    urls, meteor, snowflake = parts_of(database)
    databases = [Database(url, timeout) for url in urls]
    if len(databases) > 1:
        check_list([(one.shown, one.address.word) for one in databases])
    try:
        done = [examine_database(one, clock) for one in databases]
    finally:
        for one in databases:
            one.close()
    found = [finding for one in done for finding in at(one.where, one.findings)]
    return in_order([*found, *of_fleet(done), *of_formats(meteor, snowflake, clock())])


def parts_of(database: Any) -> tuple[Sequence[Any], MeteorSettings, SnowflakeSettings]:
    """The databases, and the formats of the allocator."""
    ids = getattr(database, "_allocator", database)  # of an AsyncAllocator
    backend: Any = getattr(ids, "_backend", None)
    if backend is None:
        several = type(database) in {list, tuple}  # not isinstance(): SQLAlchemy's URL is a tuple too
        return list(database) if several else [database], MeteorSettings(), SnowflakeSettings()
    if isinstance(backend, ServiceBackend):
        raise InvalidSetting(f"{backend.shown} is a service, but the doctor examines databases; pass their URLs")
    if not hasattr(backend, "databases"):
        raise InvalidSetting("this allocator has no database, only memory; pass the URL of a database")
    return [one.address for one in backend.databases()], ids._meteor._settings, ids._snowflake._settings
