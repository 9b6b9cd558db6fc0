"""The examination of one database: its queries, and the findings from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.database import bindings, number_bindings
from allocator.database.dialect import Dialect
from allocator.database.questions.asking import Facts, answers
from allocator.database.questions.by_database import QUESTIONS
from allocator.database.questions.table_shape import of_schema, of_tables
from allocator.database.store import Database
from allocator.database.verbs import nodes, segments, servers, shards, tickets
from allocator.doctor import mysql_rules, postgresql_rules, sqlite_rules
from allocator.errors import AllocatorError
from allocator.numbers import zone_of
from allocator.rules import bound_numbers
from allocator.rules.column_bindings import Bound, Placed
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, Rule, judge, unchecked
from allocator.rules.fleet import Shard
from allocator.schemes.snowflake_workers import Worker
from allocator.schemes.tag import REFUSE, Tag

if TYPE_CHECKING:
    from sqlalchemy import Connection

P = TypeVar("P", bound=Placed)

RULES: Mapping[str, Sequence[Rule]] = dict(
    zip(QUESTIONS, (postgresql_rules.RULES, mysql_rules.RULES, sqlite_rules.RULES), strict=True)
)


@dataclass(slots=True)
class Examination:
    """The findings on one database, and the facts for rules on its rows and on the fleet.

    complete: the tables exist, so the rows could be read.
    elsewhere: the runs of other servers in the rows of tags.
    is_member: the shard's row was used, or belongs to a fleet.
    """

    findings: list[Finding] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    complete: bool = False
    tags: list[Tag] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    newest_node: int = 0
    shard: Shard | None = None
    is_member: bool = False
    bound: list[Bound] = field(default_factory=list)
    has_tickets: bool = False
    server: str = ""
    elsewhere: frozenset[str] = frozenset()


def examine_database(database: Database, facts: Mapping[str, Any]) -> Examination:
    """Examine a database without changing it or creating a file; `facts` are those known without a query."""
    database.may_create = False
    dialect, where = database.dialect, database.address.shown
    done = Examination(facts=dict(facts))
    if database.is_missing():
        mend = "it is created on first use; if it should exist, check the path"
        done.findings.append(Finding("file-missing", NOTE, f"there is no file {database.address.file}", mend))
        done.findings += judge(RULES[dialect.name], {"path": database.address.file, **facts})
        return done
    try:
        findings = database.run(of_schema, where)
    except AllocatorError as error:
        done.findings.append(Finding("unreachable", OUTAGE, str(error), "check that it runs, and check the URL"))
        return done
    done.complete = not findings
    done.findings += findings
    done.findings += answers(database, QUESTIONS[dialect.name], done.facts, done.complete)
    done.findings += judge(RULES[dialect.name], done.facts)
    done.findings += guard(database)
    if done.complete:
        examine_tables(database, done)
    return done


def guard(database: Database) -> list[Finding]:
    try:
        blind = database.run(servers.fetch_blind)
    except AllocatorError as error:
        return [unchecked("the failover guard", str(error), "use the URL of the primary")]
    if not blind:
        return []
    name, severity = ("guard-sleeps", DANGER) if blind.sleeps else ("guard-partly-blind", NOTE)
    return [Finding(name, severity, blind.found, blind.mend)]


def examine_tables(database: Database, done: Examination) -> None:
    for subject, query in (
        ("the tables' columns", shape),
        ("the rows", rows),
        ("the server runs of tags", server_runs),
    ):
        try:
            database.run(query, done)
        except AllocatorError as error:
            done.findings.append(unchecked(subject, str(error), "let the role read all tables allocator_…"))
    for tag in fetch_bindings(database, done, "tags", bindings.fetch_all):
        try:
            done.bound.append(database.run(bindings.read, tag))
        except AllocatorError as error:
            done.findings.append(unread(tag, f"tag {tag.tag!r} is bound", "tags", error))
    for numbers in fetch_bindings(database, done, "numbers", number_bindings.fetch_all):
        try:
            read = database.run(number_bindings.read, numbers, zone_of(numbers.timezone))
            done.findings += bound_numbers.findings(read)
        except AllocatorError as error:
            done.findings.append(unread(numbers, f"numbers {numbers.name!r} are bound", "numbers", error))


def fetch_bindings(
    database: Database, done: Examination, what: str, fetch: Callable[[Connection, Dialect], Sequence[P]]
) -> Sequence[P]:
    try:
        return database.run(fetch)
    except AllocatorError as error:
        mend = "let the role read all tables allocator_…"
        done.findings.append(unchecked(f"the bindings of {what}", str(error), mend))
        return ()


def unread(one: Placed, bound: str, group: str, error: AllocatorError) -> Finding:
    mend = f"let the role read it, or run: allocator {group} unbind {one.place}"
    return unchecked(f"{one.place}, to which {bound}", str(error), mend)


def shape(connection: Connection, dialect: Dialect, done: Examination) -> None:
    done.findings += of_tables(connection, dialect)


def rows(connection: Connection, dialect: Dialect, done: Examination) -> None:
    done.tags = segments.fetch_unchecked(connection, dialect)
    done.workers = nodes.fetch_workers(connection, dialect)
    done.newest_node = max((node.number for node in nodes.fetch_newest(connection, dialect, 1)), default=0)
    done.shard = shards.fetch(connection, dialect)
    done.is_member = shards.fetch_member(connection, dialect) is not None
    done.has_tickets = tickets.has_any(connection, dialect)
    done.server = servers.fetch_identity(connection, dialect)


def server_runs(connection: Connection, dialect: Dialect, done: Examination) -> None:
    written = {tag.server_run for tag in done.tags if tag.failover_gap == REFUSE}
    done.elsewhere = frozenset(run for run in written if not servers.fetch_run(connection, dialect, run).same)
