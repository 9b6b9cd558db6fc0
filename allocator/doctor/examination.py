"""The examination of one database: what it is asked, and the findings from the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, TypeVar

from allocator.database import checks
from allocator.database.dialect import Dialect
from allocator.database.schema import inspection
from allocator.database.store import Database
from allocator.database.verbs import (
    node_rows,
    number_columns,
    segments,
    shard_row,
    start,
    worker_number_rows,
)
from allocator.doctor.tag_rules import of_clocks, of_nodes, of_spaces, of_tags
from allocator.errors import AllocatorError, DatabaseRefused, SchemaDamaged, SchemaOutOfDate
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding, unchecked
from allocator.schemes.slots import Shard, Word
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import Space, spaces_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")


@dataclass(slots=True)
class Examination:
    """The findings on one database, and its rows.

    word: the slot that the URL says.
    reached: the rows could be read.
    move: the key of the last move; None after one that nobody has noted.
    now_ms: the clock of the server, in milliseconds since 1970.
    """

    where: str
    word: Word | None = None
    findings: list[Finding] = field(default_factory=list)
    reached: bool = False
    tags: list[Tag] = field(default_factory=list)
    spaces: list[Space] = field(default_factory=list)
    newest_node: int = 0
    shard: Shard = field(default_factory=Shard)
    move: int | None = None
    now_ms: int = 0


def examine_database(database: Database, clock: Callable[[], float]) -> Examination:
    """Examine a database without changing it or creating a file."""
    database.may_create = False
    done = Examination(database.address.shown, database.address.word)
    schema = of_schema(database)
    done.findings += schema
    names = {one.name for one in schema}
    if "unreachable" in names:
        return done
    for check in import_module(f"allocator.database.{database.dialect.name}.doctor_checks").CHECKS:
        if not check.of_tables or names <= {"refused"}:
            done.findings += attempt(database, done, check.subject, checks.ask, check, fails=check.fails) or []
    if "refused" in names:  # what else cannot be asked has the same cause
        done.findings = [one for one in done.findings if one.name in {"refused", "right-missing"}]
        return done
    if not schema:
        attempt(database, done, "the rows", rows, done)
    if done.reached:
        done.findings += of_rows(done, clock())
        done.findings += attempt(database, done, "numbers without gaps", of_numbers) or []
    return done


def of_schema(database: Database) -> list[Finding]:
    """The finding that no id can be drawn from the tables, or not safely."""
    try:
        database.run(inspection.check_sound, database.address.shown)
    except SchemaOutOfDate as error:
        found = outage("schema-out-of-date", error)
        if database.dialect.embedded and found.mend == inspection.UPGRADE:
            return [replace(found, severity=NOTE, mend=f"{found.mend}, or draw an id: then that is done by itself")]
        return [found]
    except AllocatorError as error:
        return [outage("refused" if isinstance(error, DatabaseRefused) else "unreachable", error)]
    return []


def of_rows(done: Examination, now: float) -> Iterator[Finding]:
    yield from of_clocks(now - done.now_ms / 1000)
    yield from of_tags(done.tags, done.shard.residue, done.move)
    yield from of_nodes(done.newest_node)
    yield from of_spaces(done.spaces, now)


def of_numbers(connection: Connection, dialect: Dialect) -> list[Finding]:
    """The note that counters may lack numbers. Nothing else tells: their rows are lost too."""
    if not number_columns.may_lack_numbers(connection):
        return []
    found = "the database moved to another server, or was restored, and numbers without gaps may be given again"
    mend = "raise each of: allocator numbers list that is below what anybody has, by: allocator numbers set NAME N"
    return [Finding("numbers-after-move", NOTE, found, mend)]


def outage(name: str, error: AllocatorError) -> Finding:
    """The finding from an error; what follows the first semicolon of its message is the remedy."""
    found, _, mend = str(error).partition("; ")
    if isinstance(error, SchemaDamaged):
        return Finding("schema-damaged", DANGER, found, mend)
    return Finding(name, OUTAGE, found, mend or "check that it runs, and check the URL")


def attempt(
    database: Database, done: Examination, subject: str, query: Callable[..., T], *arguments: object, fails: str = ""
) -> T | None:
    """The result of a query. If it fails, the outage `fails`, or a note that the subject was not checked."""
    try:
        return database.run(query, *arguments)
    except AllocatorError as error:
        if fails or isinstance(error, SchemaDamaged):
            done.findings.append(outage(fails, error))
        else:
            done.findings.append(unchecked(subject, str(error), "run the doctor as a user that may read it"))
        return None


def rows(connection: Connection, dialect: Dialect, done: Examination) -> None:
    done.tags = segments.fetch_all(connection, dialect)
    at, leased = worker_number_rows.fetch_all(connection, dialect)
    done.shard = shard_row.fetch(connection, dialect) or Shard()
    done.spaces = spaces_of(leased, done.shard.residue, at)
    newest = node_rows.fetch_newest(connection, dialect, 1)
    done.newest_node = newest[0].number if newest else 0
    now = start.fetch(connection, dialect, done.where, "", with_revision=False)
    done.now_ms = now.at
    done.move = now.shard.move.key if now.shard and now.shard.move.run == now.run else None
    done.reached = True
