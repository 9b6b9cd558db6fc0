"""A question to a database; its answer is a few named facts. Questions never write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from sqlalchemy import Connection, text

from allocator.database.columns.tag_columns import Found
from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.errors import AllocatorError, DatabaseRefused
from allocator.rules.findings import Finding, Rules, few, unchecked

Facts = dict[str, Any]

Ask = Callable[[Connection, Facts], Mapping[str, Any]]
"""Takes a connection and the known facts; returns more facts, which later questions may use."""


ANOTHER = "run the doctor as a user with the right to read it"


class Known(Facts):
    """Known facts. A missing one means that an earlier question was refused."""

    def __missing__(self, name: str) -> NoReturn:
        raise DatabaseRefused(f"{name} could not be read")


class Question(NamedTuple):
    """The subject of a question, and the statement that grants the right to ask, filled in from the facts."""

    what: str
    ask: Ask
    mend: str = ANOTHER
    of_tables: bool = False
    """The question needs all tables: it is left out where one is missing, since it would only fail."""


class Tools(NamedTuple):
    """What a database has for these; no draw of ids needs it."""

    questions: Sequence[Question]
    rules: Rules
    fetch_column: Callable[[Connection, str, str, str], Found | None]


def ask(connection: Connection, dialect: Dialect, question: Question, facts: Facts) -> Mapping[str, Any]:
    return question.ask(connection, facts)


def answers(database: Database, questions: Sequence[Question], facts: Facts, complete: bool) -> list[Finding]:
    """Add the answers to `facts`, and return refusals as notes. `complete`: all tables exist."""
    refused = []
    for question in questions:
        if question.of_tables and not complete:
            continue
        try:
            facts.update(database.run(ask, question, Known(facts)))
        except AllocatorError as error:
            refused.append(unchecked(question.what, str(error), mend_of(question, facts)))
    return refused


def mend_of(question: Question, facts: Facts) -> str:
    try:
        return question.mend.format_map(facts)
    except KeyError:  # the user's name is unknown too
        return ANOTHER


def rows(connection: Connection, words: str, **parameters: object) -> Sequence[Any]:
    return connection.execute(text(words), parameters).all()


def pairs(connection: Connection, words: str) -> Facts:
    """Rows of a name and a value; names in small letters."""
    return {str(name).lower(): value for name, value in connection.exec_driver_sql(words)}


def named(connection: Connection, words: str, **parameters: object) -> Facts:
    """The only row, by column name."""
    row = connection.execute(text(words), parameters).mappings().first()
    return dict(row) if row else {}


def by_row(words: str) -> Ask:
    """A question that one statement answers, by a row."""
    return lambda connection, facts: named(connection, words)


def by_pairs(words: str) -> Ask:
    """A question that one statement answers, by rows of a name and a value."""
    return lambda connection, facts: pairs(connection, words)


def ahead(facts: Facts, theirs: float) -> Facts:
    """The seconds by which this machine's clock, `now`, is ahead of the server's."""
    return {"ahead": facts["now"]() - float(theirs)}


def listed(names: Sequence[object]) -> str:
    """The names as text; empty, and so false, without names."""
    return few(names, 5)


def others_of(found: Iterable[tuple[str, str, bool]]) -> Facts:
    """The facts for the rule `others-may-write`, from roles, what they may write, and whether they log in themselves.

    docs/operating.md lets users other than the one that draws write tokens, and numbers without gaps.
    """
    by_hand = {"allocator_token", "allocator_number", "allocator_number_void"}
    others = [one[:2] for one in found if not (one[2] and by_hand.issuperset(one[1].split(", ")))]
    return {
        "others": ", ".join(f"{role} may write {places}" for role, places in others),
        "revoke": " ".join(f"REVOKE ALL ON {places} FROM {role};" for role, places in others),
    }


def losing(losses: Sequence[str], durable_by: str, is_durable: bool) -> Facts:
    """The facts for the rule `not-durable`. is_durable: by the failover guard, which else counts each restart."""
    restarts = "" if is_durable else "; so each restart of the server skips ids"
    return {"losses": ", ".join(losses), "durable_by": durable_by, "restarts": restarts}
