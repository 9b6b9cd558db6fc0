"""The examination: what each database is asked, the findings from its answers, and those on several databases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from allocator.database import checks, schema
from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.database.verbs import gapless_number_rows, node_rows, segments, worker_number_rows
from allocator.doctor.tag_rules import of_clocks, of_nodes, of_spaces, of_tags
from allocator.errors import AllocatorError, DatabaseRefused, SchemaDamaged, SchemaOutOfDate
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding, few, unchecked
from allocator.schemes.slots import ARGUMENT, Shard, Word, check_word, unasked
from allocator.schemes.worker_number_lease import spaces_of

if TYPE_CHECKING:
    from sqlalchemy import Connection


@dataclass(slots=True)
class Examination:
    """The findings on one database. word: the slot that its URL says; shard: its row, None if that cannot be read."""

    where: str
    word: Word | None = None
    findings: list[Finding] = field(default_factory=list)
    shard: Shard | None = None


def examine_database(database: Database, clock: Callable[[], float]) -> Examination:
    """Examine a database without changing it or creating a file."""
    database.may_create = False
    done = Examination(database.address.shown, database.address.word)
    found = of_schema(database)
    done.findings += found
    names = {one.name for one in found}
    if "unreachable" in names:
        return done
    for check in checks.CHECKS[database.dialect.name]:
        if not check.of_tables or names <= {"refused"}:
            done.findings += attempt(database, check.subject, checks.ask, check, fails=check.fails)
    if "refused" in names:  # what else cannot be asked has the same cause
        done.findings = [one for one in done.findings if one.name in {"refused", "right-missing"}]
    elif not found:
        done.findings += attempt(database, "the rows", of_rows, done, clock)
    return done


def of_schema(database: Database) -> list[Finding]:
    """The finding that no id can be drawn from the tables, or not safely."""
    try:
        database.run(schema.check_sound, database.address.shown)
    except SchemaOutOfDate as error:
        found = outage("schema-out-of-date", error)
        if database.dialect.embedded and found.mend == schema.UPGRADE:
            return [replace(found, severity=NOTE, mend=f"{found.mend}, or draw an id: then that is done by itself")]
        return [found]
    except AllocatorError as error:
        return [outage("refused" if isinstance(error, DatabaseRefused) else "unreachable", error)]
    return []


def of_rows(connection: Connection, dialect: Dialect, done: Examination, clock: Callable[[], float]) -> list[Finding]:
    at, leased = worker_number_rows.fetch_all(connection, dialect)
    newest = node_rows.fetch_newest(connection, dialect, 1)
    now = segments.fetch_snapshot(connection, dialect, done.where, "", with_revision=False)
    done.shard = now.shard
    move = done.shard.move.key if done.shard.move.run == now.run else None
    return [
        *of_clocks(clock() - now.at / 1000),
        *of_tags(segments.fetch_all(connection, dialect), done.shard.residue, move),
        *of_nodes(newest[0].number if newest else 0),
        *of_spaces(spaces_of(leased, done.shard.residue, at)),
        *of_numbers(connection),
    ]


def of_numbers(connection: Connection) -> list[Finding]:
    """The note that counters may lack numbers. Nothing else tells: their rows are lost too."""
    if not gapless_number_rows.may_lack_numbers(connection):
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
    database: Database, subject: str, query: Callable[..., list[Finding]], *arguments: object, fails: str = ""
) -> list[Finding]:
    """The findings of a query. If it fails, the outage `fails`, or a note that the subject was not checked."""
    try:
        return database.run(query, *arguments)
    except AllocatorError as error:
        if fails or isinstance(error, SchemaDamaged):
            return [outage(fails, error)]
        return [unchecked(subject, str(error), "run the doctor as a user that may read it")]


def of_fleet(databases: Sequence[Examination]) -> Iterator[Finding]:
    """Whether each database is the slot that its URL says, and whether all were given."""
    for one in databases:
        if one.shard is None:
            continue
        if one.word:
            try:
                check_word(one.where, one.word, one.shard)
            except AllocatorError as error:
                yield replace(outage("shard-is-another", error), severity=DANGER)
        elif one.shard.word:
            yield Finding(
                "url-names-no-slot",
                NOTE,
                f"{one.where} is in a fleet, and its URL does not say which slot: a copy or an older state of it would "
                "be used in its place",
                f"add ?{ARGUMENT}={one.shard.word} to the URL, wherever it is written",
            )
    if slots := unasked([one.shard for one in databases if one.shard and one.shard.fleet]):
        missing = few(f"slot {slot}" for slot in slots)
        yield unchecked("all slots", f"not given: {missing}", "pass --url once for each slot")
