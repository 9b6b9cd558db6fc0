"""MySQL and MariaDB, by PyMySQL: only what differs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import ceil
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Insert, Table, TextClause, text
from sqlalchemy.dialects.mysql import insert
from sqlalchemy.exc import DBAPIError

from allocator.database.dialect import ASLEEP, MAX_CONNECT_SECONDS, NOWHERE, Blind, Dialect
from allocator.database.mysql.identity import (
    CLOCK,
    FACTS,
    SESSION,
    in_session,
    is_merely_like_it,
    run_in,
    version_of,
)
from allocator.database.schema.tables import segment
from allocator.database.verbs.claims import triggered
from allocator.errors import DatabaseUnavailable
from allocator.schemes.failover import CLUSTER, Move, is_run
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.tag import damaged
from allocator.schemes.ticket import REPLACE

if TYPE_CHECKING:
    from allocator.database.verbs.gapless_number_rows import NumberDialect
    from allocator.schemes.tag_column import Counter


# GET_LOCK is of the whole server: schemas of several databases there change one after the other.
SCHEMA_LOCK = "allocator_schema_change"
RUN = "@allocator_run"
IN_TRANSACTION = 1
"""SERVER_STATUS_IN_TRANS: each OK packet has it in its status flags, so no query is needed."""


CLAIM = f"""
UPDATE allocator_segment SET  -- assigned from left to right
    skipped = skipped + :skip,
    claimed_at = {CLOCK},
    move = :now,
    max_value = LAST_INSERT_ID(max_value + :skip + :span)  -- the gap after a failover, or 0, and what is claimed
WHERE tag = :name
    AND max_value <= id_limit - :skip - :span  -- the limit of the tag, and no overflow
    AND max_value >= :seen - :skip  -- the row did not fall back below ids that this process has seen
    AND shard_offset = :residue_offset AND shard_step = :residue_step  -- the ids of this database
    AND move = :was  -- nobody else has skipped the gap meanwhile
    AND {{run}} = :run  -- the server is the one that this process knows
    AND EXISTS (SELECT 1 FROM allocator_shard WHERE move = :now AND server_run = :run)  -- and so are its rows
"""

UNSAID = frozenset({"1064", "1142", "1143", "1146", "1193", "1227", "1235", "1305", "1370"})
"""A server or proxy refuses a variable, function or table, or lacks it: connect without the identity of the server."""
TOO_BIG = "1104"
"""A server's `max_join_size` forbids to look for the cluster's name, until the session allows it."""


class MySQL(Dialect):
    name = "mysql"
    default_driver = "pymysql"
    extra = "mysql"
    unusable_drivers = frozenset({"mysqlconnector"})  # its timeouts, in fields named as PyMySQL's, are whole seconds
    needs_name = rolls_back_by_itself = True
    may_name = frozenset({"database", "db", "read_default_file", "read_default_group"})
    transactional_ddl = False
    recycle = 60  # the run of a session says whether the server was durable when it began
    clock, claiming = CLOCK, CLAIM
    has_returning = False
    skips_locked = "/*!80001 SKIP LOCKED *//*M!100600 SKIP LOCKED */"

    def numbers(self, is_mariadb: bool) -> NumberDialect:
        from allocator.database.mysql.gapless_draws import MariaDBNumbers, MySQLNumbers

        return MariaDBNumbers(self) if is_mariadb else MySQLNumbers(self)

    def counter(self, connection: Connection, schema: str, table_name: str, column_name: str) -> Counter:
        from allocator.schemes.tag_column import Counter

        quote = connection.dialect.identifier_preparer.quote_identifier  # doubles %, as a statement needs
        place = ".".join(quote(part) for part in (schema, table_name) if part)
        # information_schema may be a day old. A counter that is at 1 is not shown.
        words = connection.exec_driver_sql(f"SHOW CREATE TABLE {place}").one()[1]
        found = re.search(r"^\).*? AUTO_INCREMENT=(\d+)", words, re.MULTILINE)
        hold = f"ALTER TABLE {place.replace('%%', '%')} AUTO_INCREMENT = {{n}}"
        return Counter("AUTO_INCREMENT", int(found[1]) if found else 1, hold=hold)

    def connect_args(self, driver: str, timeout: float) -> dict[str, Any]:
        seconds = min(timeout, MAX_CONNECT_SECONDS)
        # PyMySQL's connect_timeout covers the TCP handshake alone, which a frozen server still completes.
        greeting: dict[str, Any] = {"connect_timeout": ceil(seconds)}
        if driver == self.default_driver:
            # Else PyMySQL spends a message to switch autocommit off.
            greeting |= {"read_timeout": seconds, "write_timeout": seconds, "autocommit": True}
        return greeting

    def on_given(self, connection: Any) -> None:
        """No COMMIT: a server's completion_type may end the connection at it; see `on_connect`."""

    def on_connect(self, connection: Any, info: dict[Any, Any], timeout: float) -> None:
        # Not by arguments: a connection may come from the user's own engine.
        if hasattr(connection, "_read_timeout"):
            connection._read_timeout = connection._write_timeout = timeout
        with connection.cursor() as cursor:
            knows = not is_merely_like_it(version_of(connection, cursor))
            session = SESSION.format(half=ceil(timeout / 2))
            try:
                cursor.execute(", ".join([session, *([in_session(info)] if knows else [])]))
            except Exception as error:
                if not knows or self.code(error) not in {TOO_BIG, *UNSAID}:
                    raise
                cursor.execute(session)
                knows = self.code(error) == TOO_BIG
                if knows:
                    cursor.execute(f"SET {in_session(info)}")
        if knows:
            info["run"] = RUN

    def leaves_open(self, driver_connection: Any) -> bool:
        status = getattr(driver_connection, "server_status", None)  # PyMySQL's, of the last OK packet
        if isinstance(status, int):
            return bool(status & IN_TRANSACTION)
        return getattr(driver_connection, "in_transaction", False) is True

    def code(self, error: BaseException) -> str:
        return str(error.args[0]) if error.args else ""

    @contextmanager
    def schema_change(self, connection: Connection, timeout: float) -> Iterator[None]:
        # DDL commits implicitly here, so the lock belongs to the session and not to a transaction.
        got = connection.scalar(
            text("SELECT GET_LOCK(:name, :seconds)"), {"name": SCHEMA_LOCK, "seconds": ceil(timeout)}
        )
        if got != 1:
            raise DatabaseUnavailable(f"another change of the schema is still running after {timeout:g} seconds")
        try:
            yield
        except BaseException:
            connection.invalidate()  # the lock ends with the session; the next statement could hide the error
            raise
        connection.execute(text("DO RELEASE_LOCK(:name)"), {"name": SCHEMA_LOCK})

    def before(self, connection: Connection) -> Dialect:
        return self if "run" in connection.info else self.imitation

    def runs(self, connection: Connection, guards_restarts: bool) -> Iterator[str]:
        if not is_merely_like_it(str(connection.exec_driver_sql("SELECT VERSION()").scalar())):
            with suppress(DBAPIError):
                connection.exec_driver_sql(f"SET {in_session({'guards_restarts': guards_restarts})}")
                yield RUN
        yield NOWHERE

    def facts(self, connection: Connection) -> Mapping[str, str]:
        return {**FACTS, "run": run_in(connection.info)}

    def run(self, connection: Connection, facts: Any, known: Move) -> str:
        run, since = str(facts.run), int(facts.at) // 1000 - int(facts.uptime)
        run = known.run if is_run(run, known, since) else run
        if run != facts.session_run:  # a proxy may have changed the server, or it is no longer durable
            connection.execute(text("SET @allocator_run = :run"), {"run": run})
        connection.info["numbering"] = Residue(facts.session_offset, facts.session_step)
        return run

    def server_numbering(self, facts: Any) -> Residue:
        if CLUSTER in facts.run or facts.server_step < 2:
            return ALL
        return Residue(facts.server_offset, facts.server_step)

    def insert_missing(self, table: Table) -> Insert:
        return insert(table).prefix_with("IGNORE")

    def claim(self, connection: Connection, claim: TextClause, parameters: dict[str, object], name: str) -> int | None:
        cursor: Any = connection.execute(claim, parameters).context.cursor
        return end_of_claim(name, cursor.rowcount, warned(cursor), cursor.lastrowid)

    def shared_lock(self, connection: Connection) -> str:
        return "LOCK IN SHARE MODE"

    def tickets(self, connection: Connection) -> str:
        return REPLACE

    def number_as(self, connection: Connection, residue: Residue) -> None:
        if connection.info.get("numbering") != residue:
            connection.exec_driver_sql(
                f"SET SESSION auto_increment_offset = {residue.offset}, auto_increment_increment = {residue.step}"
            )
            connection.info["numbering"] = residue


class LikeMySQL(MySQL):
    """Of an engine that speaks MySQL's protocol, or of a server that does not say which one it is."""

    facts, run, server_numbering = Dialect.facts, Dialect.run, Dialect.server_numbering
    number_as, tickets = Dialect.number_as, Dialect.tickets
    """The auto-increment of an imitation gives lower numbers after higher ones, or leaves a million out."""

    def blind(self, connection: Connection) -> Blind:
        return ASLEEP

    def shared_lock(self, connection: Connection) -> str:
        """TiDB has no shared locks."""
        return "FOR UPDATE"


MySQL.imitation = LikeMySQL()


def end_of_claim(name: str, found: int, warned: bool, last_id: int) -> int | None:
    """The end of the claimed window, from the server's answer; None if no row matched."""
    if found == 0:
        return None
    if found != 1:
        raise damaged(name, f"there are {found} rows")
    if warned:
        raise damaged(name, "the claim came with a warning of the server, as when a column is too small")
    if last_id <= 0:
        raise triggered(name, segment.name)
    return int(last_id)


def warned(cursor: Any) -> bool:
    return bool(getattr(cursor, "warning_count", 0))
