"""What the doctor asks of one server; its own questions are in the `doctor_checks.py` of each database."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from sqlalchemy import Connection, Executable, delete, false, insert, select, update
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import Blind, Dialect
from allocator.database.driver_errors import FORBIDDEN, is_forbidden, meaning
from allocator.database.schema.tables import VERSION_TABLE, metadata
from allocator.errors import DatabaseRefused
from allocator.schemes.shared.findings import DANGER, NOTE, OUTAGE, Finding

WRITES, ADDS, READS = "SELECT, INSERT, UPDATE", "SELECT, INSERT", "SELECT"
MOVES = ("server_run", "move", "new_tags_above", "moved_at", "made")
"""What a failover changes in the shard's row, and a new tag. All else there is the operator's."""
NEEDED = {
    **dict.fromkeys(("allocator_segment", "allocator_lease"), WRITES),
    "allocator_node": ADDS,
    "allocator_shard": f"{READS}, UPDATE ({', '.join(MOVES)})",
    **dict.fromkeys(("allocator_ticket", "allocator_token"), READS),
    **dict.fromkeys(("allocator_number", "allocator_number_void"), READS),
}
"""The rights of who draws ids: see docs/operating.md. The table of the revision may be Django's or Alembic's."""
TABLES = [table.name for table in metadata.sorted_tables]
BY_HAND = {"allocator_token", "allocator_number", "allocator_number_void"}
"""What docs/operating.md lets users other than the one that draws write."""


class Check(NamedTuple):
    """A check of the server.

    of_tables: it needs them all.
    fails: the name of the finding, an outage, if the check itself fails; else that is a note.
    """

    subject: str
    ask: Callable[[Connection, Dialect], Iterable[Finding]]
    of_tables: bool = False
    fails: str = ""


def ask(connection: Connection, dialect: Dialect, check: Check) -> list[Finding]:
    return list(check.ask(connection, dialect))


def fetch_blind(connection: Connection, dialect: Dialect) -> Blind | None:
    """What the failover guard cannot see here."""
    return dialect.blind(connection)


def guard(connection: Connection, dialect: Dialect) -> Iterator[Finding]:
    if blind := dialect.blind(connection):
        name, severity = ("guard-sleeps", DANGER) if blind.sleeps else ("guard-partly-blind", NOTE)
        yield Finding(name, severity, blind.found, blind.mend)


GUARD = Check("the failover guard", guard)


def writes(
    connection: Connection, dialect: Dialect, user: str, needed: Mapping[str, str] = NEEDED, also: str = ""
) -> Iterator[Finding]:
    """The finding for a right of `needed` that the user lacks, with all grants; `also` is one more.

    Runs a statement for each right, on no row. Raises what else stops a claim.
    """
    if hidden := hides_revision(connection, dialect):
        needed = {VERSION_TABLE: READS, **needed}
    grants = " ".join([*(f"GRANT {verbs} ON {name} TO {user};" for name, verbs in needed.items()), also])
    if hidden:
        yield Finding("right-missing", OUTAGE, f"{user} lacks the right SELECT on {VERSION_TABLE}", grants.strip())
        return
    for name, verbs in needed.items():
        table = metadata.tables[name]
        columns = [column for column in table.columns if column.identity is None]
        written = MOVES if name == "allocator_shard" else [table.columns.keys()[1]]  # of a tag its `max_value`
        tried: dict[str, Executable] = {
            "SELECT": select(*columns).where(false()),
            "INSERT": insert(table).from_select(columns, select(*columns).where(false())),
            "UPDATE": update(table).values({one: table.c[one] for one in written}).where(false()),
            "DELETE": delete(table).where(false()),
        }
        for verb in re.findall(r"\w+(?: \(.*\))?", verbs):
            try:
                with meaning(DatabaseRefused(f"{user} lacks the right {verb} on {name}"), FORBIDDEN, dialect):
                    connection.execute(tried[verb.partition(" ")[0]]).close()
            except DatabaseRefused as error:
                yield Finding("right-missing", OUTAGE, str(error), grants.strip())
                return


def hides_revision(connection: Connection, dialect: Dialect) -> bool:
    """Whether the user may not read the table of the revision, which may also be Django's or Alembic's."""
    try:
        connection.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").close()
    except DBAPIError as error:
        return is_forbidden(error, dialect)
    return False


def others_may_write(found: Iterable[tuple[str, str, bool]]) -> Iterator[Finding]:
    """The finding for roles, each with what it may write and whether it logs in itself."""
    others = [one[:2] for one in found if not (one[2] and BY_HAND.issuperset(one[1].split(", ")))]
    if others:
        yield Finding(
            "others-may-write",
            DANGER,
            f"{', '.join(f'{role} may write {places}' for role, places in others)}: whoever may use such a role can "
            "lower a tag, so that its ids come again, or make a token",
            f"{' '.join(f'REVOKE ALL ON {places} FROM {role};' for role, places in others)} For default privileges "
            "and APIs see docs/managed-databases.md",
        )
