"""A question to a database, whose answer is a few named facts; questions read, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from sqlalchemy import Connection, text

from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.errors import AllocatorError, DatabaseRefused
from allocator.rules.findings import Finding, few, unchecked

Facts = dict[str, Any]

Ask = Callable[[Connection, Facts], Mapping[str, Any]]
"""From a connection, and the facts that are known already, to more of them."""


ANOTHER = "ask as a user that may look at it"


class Known(Facts):
    """Facts of which one that is missing is an answer that was refused, and no fault of ours."""

    def __missing__(self, name: str) -> NoReturn:
        raise DatabaseRefused(f"{name} is not known")


class Question(NamedTuple):
    """`what` is asked about, and how to get the right to ask: a statement, filled in from the facts."""

    what: str
    ask: Ask
    mend: str = ANOTHER
    of_tables: bool = False
    """It needs the tables to be there."""


def ask(connection: Connection, dialect: Dialect, question: Question, facts: Facts) -> Mapping[str, Any]:
    return question.ask(connection, facts)


def answers(database: Database, questions: Sequence[Question], facts: Facts, complete: bool) -> list[Finding]:
    """Put the answers into `facts`; what was refused is returned, as notes. `complete`: the tables are there."""
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
    except KeyError:  # it is not known either who asks
        return ANOTHER


def rows(connection: Connection, words: str, **parameters: object) -> Sequence[Any]:
    return connection.execute(text(words), parameters).all()


def pairs(connection: Connection, words: str) -> Facts:
    """Rows of a name and a value; names in small letters."""
    return {str(name).lower(): value for name, value in connection.exec_driver_sql(words)}


def named(connection: Connection, words: str, **parameters: object) -> Facts:
    """The only row, by the names of its columns."""
    row = connection.execute(text(words), parameters).mappings().first()
    return dict(row) if row else {}


def ahead(facts: Facts, theirs: float) -> Facts:
    """By how many seconds this machine's clock, `now`, is ahead of a server's."""
    return {"ahead": facts["now"]() - float(theirs)}


def listed(names: Sequence[object]) -> str:
    """For a sentence, empty where there are none, so that a rule can ask for it."""
    return few(names, 5)


def room_within(limits: Mapping[str, int]) -> Facts:
    """How many more connections fit, by the tightest of these limits."""
    tightest = min(limits, key=lambda name: limits[name])
    return {"room": max(0, limits[tightest]), "room_limit": tightest}
