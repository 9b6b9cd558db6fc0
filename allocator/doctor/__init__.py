"""`examine`: find risks of duplicate ids or outages in databases and their configuration. Changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allocator.database.store import Database
from allocator.doctor import tag_rules
from allocator.doctor.examination import Examination, examine_database
from allocator.doctor.fleet_rules import ShardFacts, of_fleet
from allocator.errors import InvalidSetting
from allocator.remote.client import ServiceBackend
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Severity, at, in_order, is_healthy
from allocator.runtime.mounts import MOUNTS, is_networked, mount_of, mounts_of
from allocator.schemes.meteor import MeteorSettings
from allocator.schemes.shared.residues import ALL, Residue
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
    """Examine a database, or all shards of a fleet. Returns the findings, the worst first.

    database: a URL, an engine, several of these, or an allocator, whose meteor and snowflake formats are checked too.
        Opens new connections and closes them.
    timeout: seconds for each query. A failed query yields a note.
    clock: this machine's clock, in seconds since 1970.

    Raises `InvalidDatabase` for anything else, and `InvalidSetting` for an allocator that uses a service.
    """
    urls, meteor, snowflake = parts_of(database)
    databases = [Database(url, timeout) for url in urls]
    try:
        examinations = [examine_one(one, clock, snowflake) for one in databases]
    finally:
        for one in databases:
            one.close()
    pairs = list(zip(databases, examinations, strict=True))
    fleet = of_fleet([shard_facts(one, examination, len(databases) > 1) for one, examination in pairs])
    formats = tag_rules.of_formats(meteor, snowflake, clock())
    each = [at(one.address.shown, examination.findings) for one, examination in pairs]
    return in_order([finding for findings in [*each, fleet, formats] for finding in findings])


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


def examine_one(database: Database, clock: Callable[[], float], snowflake: SnowflakeSettings) -> Examination:
    done = examine_database(database, {"now": clock, **local_facts(database)})
    if "ahead" in done.facts:
        done.findings += tag_rules.of_clocks(done.facts["ahead"], snowflake.lease)
    if done.complete:
        done.findings += tag_rules.of_tags(done.tags, residue_of(done))
        done.findings += tag_rules.of_gaps(done.tags, done.elsewhere, bool(done.facts.get("has_asynchronous_standby")))
        done.findings += tag_rules.of_nodes(done.newest_node)
        done.findings += tag_rules.of_workers(done.workers, clock())
    return done


def residue_of(done: Examination) -> Residue:
    """The residues that the rows of tags should have; step 0 while the fleet grows."""
    return ALL if done.shard is None or done.shard.joining else done.shard.residue


def shard_facts(database: Database, done: Examination, several: bool) -> ShardFacts:
    """The facts for the rules on fleets. With several databases, an unused row does not count as a shard."""
    address = database.address
    machine = str(done.facts.get("machine") or "")
    row = done.shard if done.is_member or not several else None
    return ShardFacts(address.shown, row, done.server, machine, address.public_url, done.complete, done.has_tickets)


def local_facts(database: Database) -> dict[str, Any]:
    """The facts that are known without a query."""
    path = database.address.file
    return {} if path is None else file_facts(Path(path).resolve())


def file_facts(path: Path) -> dict[str, Any]:
    there = [path, path.parent] if path.exists() else [path.parent]
    facts: dict[str, Any] = {"unwritable": " and ".join(str(one) for one in there if not may_write(one))}
    if path in there:
        status = path.stat()
        facts |= {"machine": f"device {status.st_dev}", "networked": networked(path)}
    return facts


def may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def networked(path: Path) -> str:
    """The type of a network file system; empty for a local one, or if /proc/mounts cannot be read."""
    try:
        mount = mount_of(str(path), mounts_of(MOUNTS.read_text()))
    except OSError:
        return ""
    return mount.kind if mount and is_networked(mount.kind) else ""
