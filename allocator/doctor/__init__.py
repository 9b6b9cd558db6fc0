"""`examine`: what about databases and their configuration could give an id twice, or stop ids. It changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.doctor import tag_rules
from allocator.doctor.fleet_rules import Looked, of_fleet
from allocator.doctor.mounts import is_networked, mount_of, mounts_of
from allocator.errors import InvalidSetting
from allocator.remote.client import Service
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Severity, at, in_order, is_healthy
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.residues import ALL, Lane
from allocator.schemes.snowflake import SnowflakeSettings

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

    from allocator.aio import AsyncAllocator
    from allocator.database.store import Database
    from allocator.doctor.examination import Examined
    from allocator.sync import Allocator

    One = str | URL | Engine

__all__ = ["DANGER", "NOTE", "OUTAGE", "Finding", "Severity", "examine", "is_healthy"]

MOUNTS = Path("/proc/mounts")


def examine(
    database: One | Allocator | AsyncAllocator | Sequence[One],
    *,
    timeout: float = 5.0,
    clock: Callable[[], float] = time.time,
) -> list[Finding]:
    """Look at a database, or at several that are shards of one fleet; the worst findings come first.

    database: a URL, an engine, several of these, or an allocator, whose formats of meteors and snowflakes are then
        looked at too; connections are made anew, and closed afterwards.
    timeout: seconds for each question. What cannot be asked is a finding too, a note.
    clock: this machine's clock, in seconds since 1970.

    Raises `InvalidDatabase` for what is no database, and `InvalidSetting` for an allocator that asks a service.
    """
    from allocator.database.store import Database  # imports SQLAlchemy

    given, meteor, snowflake = parts_of(database)
    databases = [Database(one, timeout) for one in given]
    try:
        done = [examined(one, clock, snowflake) for one in databases]
    finally:
        for one in databases:
            one.close()
    fleet = of_fleet([looked(one, found, len(databases) > 1) for one, found in zip(databases, done, strict=True)])
    formats = tag_rules.of_formats(meteor, snowflake, clock())
    each = [at(one.address.shown, found.findings) for one, found in zip(databases, done, strict=True)]
    return in_order([finding for findings in [*each, fleet, formats] for finding in findings])


def parts_of(database: Any) -> tuple[Sequence[Any], MeteorSettings, SnowflakeSettings]:
    """The databases, and the formats that are used with them."""
    ids = getattr(database, "_allocator", database)  # of the asyncio face
    backend = getattr(ids, "_backend", None)
    if backend is None:
        several = type(database) in {list, tuple}  # and not a URL of SQLAlchemy, which is a tuple too
        return list(database) if several else [database], MeteorSettings(), SnowflakeSettings()
    if isinstance(backend, Service):
        raise InvalidSetting(f"{backend.shown} is a service; the doctor looks at its databases: give their URLs")
    if not hasattr(backend, "databases"):
        raise InvalidSetting("this allocator keeps its rows in memory, and the doctor looks at databases: give a URL")
    return [one.address for one in backend.databases()], ids._meteor._settings, ids._snowflake._settings


def examined(database: Database, clock: Callable[[], float], snowflake: SnowflakeSettings) -> Examined:
    from allocator.doctor.examination import examine_database

    done = examine_database(database, {"now": clock, **around(database)})
    if "ahead" in done.facts:
        done.findings += tag_rules.of_clocks(done.facts["ahead"], snowflake.lease)
    if done.complete:
        has_standby = any(one.name == "asynchronous-standby" for one in done.findings)
        done.findings += tag_rules.of_tags(done.tags, lane_of(done))
        done.findings += tag_rules.of_gaps(done.tags, done.elsewhere, has_standby)
        done.findings += tag_rules.of_nodes(done.newest_node)
        done.findings += tag_rules.of_workers(done.workers, clock())
    return done


def lane_of(done: Examined) -> Lane:
    """Which ids the rows of tags should say: none while the fleet grows."""
    return ALL if done.shard is None or done.shard.joining else done.shard.lane


def looked(database: Database, done: Examined, several: bool) -> Looked:
    """Beside others, a row under which nothing was drawn is none."""
    address = database.address
    machine = str(done.facts.get("machine") or "")
    row = done.shard if done.is_member or not several else None
    return Looked(address.shown, row, done.server, machine, address.told, done.complete, done.has_tickets)


def around(database: Database) -> dict[str, Any]:
    """What is known without asking the database."""
    url, path = database.address.url, database.address.file
    if path is not None:
        return around_file(Path(path).resolve())
    return {"host": url.host or "", "is_remote": bool(url.host) and not is_local(str(url.host))}


def is_local(host: str) -> bool:
    """Whether a host is this machine by its name; names are not looked up."""
    if host == "localhost" or host.startswith("/"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def around_file(path: Path) -> dict[str, Any]:
    barred = [str(one) for one in (path, path.parent) if (one == path.parent or one.exists()) and not may_write(one)]
    if not path.exists():
        return {"unwritable": " and ".join(barred)}
    status = path.stat()
    return {
        "machine": f"device {status.st_dev}",
        "links": status.st_nlink,
        "unwritable": " and ".join(barred),
        "networked": networked(path),
    }


def may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def networked(path: Path) -> str:
    """The kind of the file system, if it is one of a network; empty where it is not, or where that cannot be told."""
    try:
        mount = mount_of(str(path), mounts_of(MOUNTS.read_text()))
    except OSError:
        return ""
    return mount.kind if mount and is_networked(mount.kind) else ""
