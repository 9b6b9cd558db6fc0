"""All that is asked of one database, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection

from allocator.database.batch import BatchVerbs
from allocator.database.dialect import Dialect
from allocator.database.health import (
    mysql,
    postgresql,
    rules_of_mysql,
    rules_of_postgresql,
    rules_of_sqlite,
    sqlite,
)
from allocator.database.health.asking import Facts, Question, answers
from allocator.database.health.tables import of_schema, of_tables
from allocator.database.store import Database
from allocator.errors import AllocatorError
from allocator.schemes.epoch import REFUSE
from allocator.schemes.finding import NOTE, OUTAGE, Finding, Rule, judge, unseen
from allocator.schemes.registry import Worker
from allocator.schemes.shard import Shard
from allocator.schemes.tag import Tag


class Asked(NamedTuple):
    questions: Sequence[Question]
    rules: Sequence[Rule]


ASKED: Mapping[str, Asked] = {
    "postgresql": Asked(postgresql.QUESTIONS, rules_of_postgresql.RULES),
    "mysql": Asked(mysql.QUESTIONS, rules_of_mysql.RULES),
    "sqlite": Asked(sqlite.QUESTIONS, rules_of_sqlite.RULES),
}


@dataclass(slots=True)
class Examined:
    """One database: what was found, and what is judged together with its rows and the other shards.

    complete: the tables are there, so that the rows could be read; elsewhere: the epochs of rows of other runs.
    is_member: something was drawn under the shard's row, or it is that of a fleet.
    """

    findings: list[Finding] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)
    complete: bool = False
    tags: list[Tag] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    newest_node: int = 0
    shard: Shard | None = None
    is_member: bool = False
    has_tickets: bool = False
    server: str = ""
    elsewhere: frozenset[str] = frozenset()


def examine_database(database: Database, facts: Mapping[str, Any]) -> Examined:
    """`facts` are those that are known without asking. Nothing is changed, and no file is made."""
    database.may_create = False
    dialect, where = database.dialect, database.address.shown
    done = Examined(facts=dict(facts))
    if database.is_missing():
        mend = "it is made on first use; if there should be one, look at the path"
        done.findings.append(Finding("file-missing", NOTE, f"there is no file {database.address.file}", mend))
        done.findings += judge(ASKED[dialect.name].rules, {"path": database.address.file, **facts})
        return done
    try:
        found = database.run(of_schema, dialect, where)
    except AllocatorError as error:
        done.findings.append(Finding("unreachable", OUTAGE, str(error), "see that it runs, and that the URL is right"))
        return done
    done.complete = not found
    done.findings += found
    asked = ASKED[dialect.name]
    done.findings += answers(database, asked.questions, done.facts, done.complete)
    done.findings += judge(asked.rules, done.facts)
    if done.complete:
        look_at_tables(database, done)
    return done


def look_at_tables(database: Database, done: Examined) -> None:
    for what, look in (("the tables' columns", shape), ("the rows", rows), ("the epochs of tags", epochs)):
        try:
            database.run(look, database.dialect, done)
        except AllocatorError as error:
            done.findings.append(unseen(what, str(error), "let the user SELECT from all tables allocator_…"))


def shape(connection: Connection, dialect: Dialect, done: Examined) -> None:
    done.findings += of_tables(connection, dialect)


def rows(connection: Connection, dialect: Dialect, done: Examined) -> None:
    done.tags = dialect.look_at_segments(connection)
    done.workers = dialect.list_workers(connection)
    done.newest_node = max((node.number for node in dialect.list_nodes(connection, 1)), default=0)
    done.shard = dialect.read_shard(connection)
    done.is_member = dialect.read_member(connection) is not None
    done.has_tickets = dialect.holds_tickets(connection)
    done.server = dialect.read_server(connection)


def epochs(connection: Connection, dialect: BatchVerbs, done: Examined) -> None:
    written = {tag.epoch for tag in done.tags if tag.margin == REFUSE}
    done.elsewhere = frozenset(epoch for epoch in written if not dialect.look_here(connection, epoch).same)
