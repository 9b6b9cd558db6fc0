"""The examination of one database: its queries, and the findings from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from allocator.database.dialect import Dialect
from allocator.database.doctor_queries.questions import Facts, answers
from allocator.database.doctor_queries.table_shape import of_schema, of_tables
from allocator.database.store import Database
from allocator.database.verbs import node_and_snowflake_rows, segments, servers, shard_row, tickets
from allocator.errors import AllocatorError, DatabaseRefused
from allocator.rules.findings import DANGER, NOTE, OUTAGE, Finding, judge, unchecked
from allocator.rules.fleet_consistency import Shard
from allocator.schemes.snowflake import SnowflakeWorker
from allocator.schemes.tag import REFUSE, Tag

if TYPE_CHECKING:
    from sqlalchemy import Connection

T = TypeVar("T")


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
    workers: list[SnowflakeWorker] = field(default_factory=list)
    newest_node: int = 0
    shard: Shard | None = None
    is_member: bool = False
    has_tickets: bool = False
    server: str = ""
    elsewhere: frozenset[str] = frozenset()


def examine_database(database: Database, facts: Mapping[str, Any]) -> Examination:
    """Examine a database without changing it or creating a file; `facts` are those known without a query."""
    database.may_create = False
    tools, where = database.dialect.tools(), database.address.shown
    done = Examination(facts=dict(facts))
    if database.is_missing():
        mend = "it is created on first use; if it should exist, check the path"
        done.findings.append(Finding("file-missing", NOTE, f"there is no file {database.address.file}", mend))
        done.findings += judge(tools.rules, {"path": database.address.file, **facts})
        return done
    try:
        findings = database.run(of_schema, where)
    except DatabaseRefused as error:
        done.findings.append(Finding("refused", OUTAGE, str(error), "do that, and run the doctor again"))
        return done
    except AllocatorError as error:
        done.findings.append(Finding("unreachable", OUTAGE, str(error), "check that it runs, and check the URL"))
        return done
    done.complete = not findings
    done.findings += findings
    done.findings += answers(database, tools.questions, done.facts, done.complete)
    done.findings += judge(tools.rules, done.facts)
    guard(database, done)
    if done.complete:
        examine_tables(database, done)
    return done


def guard(database: Database, done: Examination) -> None:
    blind = attempt(database, done, "the failover guard", "use the URL of the primary", servers.fetch_blind)
    if blind:
        name, severity = ("guard-sleeps", DANGER) if blind.sleeps else ("guard-partly-blind", NOTE)
        done.findings.append(Finding(name, severity, blind.found, blind.mend))


def examine_tables(database: Database, done: Examination) -> None:
    mend = "let the role read all tables allocator_…"
    attempt(database, done, "the tables' columns", mend, shape, done)
    attempt(database, done, "the rows", mend, rows, done)
    attempt(database, done, "the server runs of tags", mend, server_runs, done)


def attempt(
    database: Database, done: Examination, subject: str, mend: str, query: Callable[..., T], *arguments: Any
) -> T | None:
    """The result of a query. If it fails, a note says that the subject was not checked."""
    try:
        return database.run(query, *arguments)
    except AllocatorError as error:
        done.findings.append(unchecked(subject, str(error), mend))
        return None


def shape(connection: Connection, dialect: Dialect, done: Examination) -> None:
    done.findings += of_tables(connection, dialect)


def rows(connection: Connection, dialect: Dialect, done: Examination) -> None:
    done.tags = segments.fetch_unchecked(connection, dialect)
    done.workers = node_and_snowflake_rows.fetch_workers(connection, dialect)
    done.newest_node = max(
        (node.number for node in node_and_snowflake_rows.fetch_newest(connection, dialect, 1)), default=0
    )
    done.shard = shard_row.fetch(connection, dialect)
    done.is_member = shard_row.fetch_member(connection, dialect) is not None
    done.has_tickets = tickets.has_any(connection, dialect)
    done.server = servers.fetch_identity(connection, dialect)


def server_runs(connection: Connection, dialect: Dialect, done: Examination) -> None:
    written = {tag.server_run for tag in done.tags if tag.failover_gap == REFUSE}
    done.elsewhere = frozenset(run for run in written if not servers.fetch_run(connection, dialect, run).same)
