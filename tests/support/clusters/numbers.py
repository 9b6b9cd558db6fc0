"""Numbers without gaps on two members of a cluster at once: locks are a member's own, and certification decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.exc import DBAPIError

from allocator import Numbers
from allocator.errors import NumberConflict
from support.clusters.cluster import Cluster

EACH = 25
"""Numbers that each member writes."""
REFUSED = {1180, 1213, 3101}
"""A deadlock, also during COMMIT, and a transaction that the plugin has rolled back: the whole is to be run again."""
TABLE = (
    "CREATE TABLE IF NOT EXISTS invoice "
    "(scope VARCHAR(20), member INT, line INT, n BIGINT NOT NULL, PRIMARY KEY (scope, member, line))"
)
"""It stays: Group Replication cannot order a DROP after the rows of another member, and expels who fails."""

invoices = Numbers("invoice")


@contextmanager
def members(cluster: Cluster) -> Iterator[list[Engine]]:
    """Two of them, with a table for rows."""
    engines = [create_engine(cluster.url(number)) for number in (0, 1)]
    with engines[0].begin() as connection:
        connection.execute(text(TABLE))
    cluster.until(lambda: has_table(engines[1]), "the table is on the second member")
    yield engines
    for engine in engines:
        engine.dispose()


def has_table(engine: Engine) -> bool:
    with engine.connect() as connection:
        return bool(
            connection.scalar(text("SELECT COUNT(*) FROM information_schema.tables WHERE table_name = 'invoice'"))
        )


def write(connection: Connection, scope: str, member: int, line: int) -> int:
    n = invoices.next(connection, scope).n
    row = {"scope": scope, "member": member, "line": line, "n": n}
    connection.execute(text("INSERT INTO invoice VALUES (:scope, :member, :line, :n)"), row)
    return n


def code_of(error: DBAPIError) -> int:
    return int(error.orig.args[0]) if error.orig else 0


def both_drew(cluster: Cluster) -> tuple[list[int], int, int]:
    """What two transactions drew of a new scope; the code with which one was refused; what its retry drew."""
    with members(cluster) as (one, other), one.connect() as first, other.connect() as second:
        drawn = [write(first, "new", 0, 0), write(second, "new", 1, 0)]
        first.commit()
        try:
            second.commit()
        except DBAPIError as error:
            code = code_of(error)
        else:
            code = 0
        cluster.until(lambda: is_there(second, "new"), "the second member has the first number")
        again = write(second, "new", 1, 0)
        second.commit()
        return drawn, code, again


def under_contention(cluster: Cluster) -> tuple[list[int], Counter[int]]:
    """The numbers in the rows after two members have drawn in one scope, and how often a transaction was refused."""
    refused: Counter[int] = Counter()

    def run(member: int, engine: Engine) -> None:
        line = 0
        while line < EACH:
            try:
                with engine.begin() as connection:
                    write(connection, "busy", member, line)
                line += 1
            except NumberConflict:
                refused[0] += 1
            except DBAPIError as error:
                if code_of(error) not in REFUSED:
                    raise
                refused[code_of(error)] += 1

    with members(cluster) as engines:
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(run, member, engine) for member, engine in enumerate(engines)]:
                done.result()
        with engines[0].connect() as connection:
            cluster.until(lambda: len(rows(connection, "busy")) == 2 * EACH, "the first member has all rows")
            return rows(connection, "busy"), refused


def is_there(connection: Connection, scope: str) -> bool:
    connection.rollback()  # a snapshot would stay as it is
    found = invoices.peek(connection, scope)
    connection.rollback()
    return found is not None


def rows(connection: Connection, scope: str) -> list[int]:
    """The numbers in the rows of a scope."""
    connection.rollback()
    found = connection.execute(text("SELECT n FROM invoice WHERE scope = :scope ORDER BY n"), {"scope": scope})
    return list(found.scalars())
