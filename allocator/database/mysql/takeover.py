"""Takeover of a column of MySQL or MariaDB: the tag gets the lower range, and AUTO_INCREMENT continues above it.

AUTO_INCREMENT follows the greatest id that anybody inserts, so it cannot be kept below the ids of a tag. It never
follows a smaller one. Raising it, or creating or dropping a trigger, changes no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256

from sqlalchemy import Connection, text

from allocator.database.columns.integer_keys import prepare
from allocator.database.columns.takeovers import Status, begin, change, parts_of, place_tag, run_each
from allocator.database.dialect import Dialect
from allocator.database.mysql.doctor_queries import FRESH
from allocator.database.mysql.hardening import quoted
from allocator.errors import InvalidSetting
from allocator.rules.column_limit import limit_of
from allocator.rules.takeover_ranges import ColumnFacts, Ranges, Remedy, Takeover, Trigger, passed
from allocator.schemes.shared.argument_checks import MAX_ID

COUNTER = "AUTO_INCREMENT"
PATIENCE = "SET SESSION lock_wait_timeout = 1, innodb_lock_wait_timeout = 1"
"""Seconds. A longer wait for a lock would make writers queue behind it."""
FORMER_PATIENCE = (
    "SELECT CONCAT('SET SESSION lock_wait_timeout = ', @@lock_wait_timeout, "
    "', innodb_lock_wait_timeout = ', @@innodb_lock_wait_timeout)"
)
"""Returns the statement that restores the timeouts of the caller's session, which outlast the transaction."""
UNLOCK = "UNLOCK TABLES"

COLUMN = """
SELECT c.table_schema AS db, c.table_name AS tbl, c.column_name AS col, c.column_type AS type, c.data_type AS word,
       c.extra LIKE '%auto_increment%' AS counts, t.auto_increment AS next, t.engine AS engine,
       t.create_options LIKE '%partitioned%' AS is_partitioned, @@global.read_only AS is_replica, version() AS version,
       EXISTS (SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = c.table_schema
               AND s.table_name = c.table_name AND s.non_unique = 0 GROUP BY s.index_name
               HAVING COUNT(*) = 1 AND MAX(s.column_name) = :column) AS is_key,
       EXISTS (SELECT 1 FROM information_schema.statistics s WHERE s.table_schema = c.table_schema
               AND s.table_name = c.table_name AND s.column_name = c.column_name AND s.seq_in_index = 1) AS is_indexed
FROM information_schema.columns c JOIN information_schema.tables t
  ON t.table_schema = c.table_schema AND t.table_name = c.table_name AND t.table_type = 'BASE TABLE'
WHERE c.table_schema = COALESCE(:schema, DATABASE()) AND c.table_name = :table AND c.column_name = :column
"""
TRIGGERS = """
SELECT trigger_name, action_statement FROM information_schema.triggers
WHERE event_object_schema = :db AND event_object_table = :tbl AND action_timing = 'BEFORE'
  AND event_manipulation = 'INSERT' AND trigger_name <> :ours
"""
OURS = """
SELECT EXISTS (SELECT 1 FROM information_schema.triggers WHERE trigger_schema = :db AND trigger_name = :ours)
    OR NOT EXISTS (
        SELECT 1 FROM information_schema.user_privileges
        WHERE privilege_type = 'TRIGGER' AND REPLACE(grantee, CHAR(39), '') = CURRENT_USER()
        UNION ALL SELECT 1 FROM information_schema.schema_privileges
        WHERE privilege_type = 'TRIGGER' AND REPLACE(grantee, CHAR(39), '') = CURRENT_USER() AND :db LIKE table_schema)
"""
REFERENCES = """
SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.key_column_usage
WHERE referenced_table_schema = :db AND referenced_table_name = :tbl AND referenced_column_name = :col ORDER BY 1
"""
CLUSTER = (
    "SHOW GLOBAL VARIABLES WHERE variable_name IN ('wsrep_on', 'group_replication_group_name') "
    "AND value NOT IN ('', 'OFF', '0')"
)
HOLDER = """
SELECT t.processlist_id, t.processlist_user, t.processlist_host, NULL FROM performance_schema.metadata_locks l
JOIN performance_schema.threads t ON t.thread_id = l.owner_thread_id
WHERE l.object_type = 'TABLE' AND CONCAT('`', l.object_schema, '`.`', l.object_name, '`') = :table
  AND l.lock_status = 'GRANTED' AND t.processlist_id <> CONNECTION_ID() ORDER BY t.processlist_time DESC LIMIT 1
"""
"""MariaDB answers it only if performance_schema is on, which is not the default."""
END, FIND = "KILL {}", "SHOW FULL PROCESSLIST"
"""For the message to the operator: end session {}, or find it where this user may not read which it is."""
NEXT = "SELECT auto_increment FROM information_schema.tables WHERE table_schema = :db AND table_name = :tbl"
WHOLE = {"tinyint", "smallint", "mediumint", "int", "bigint"}


def fetch_facts(connection: Connection, schema: str, table: str, column: str, counter: str = "") -> ColumnFacts:
    """Fetch the facts of a column. Raises `InvalidSetting` if there is no such column.

    counter: not used; AUTO_INCREMENT belongs to the column.
    """
    prepare(connection, FRESH)
    asked = {"schema": schema or None, "table": table, "column": column}
    found = connection.execute(text(COLUMN), asked).mappings().first()
    if found is None:
        raise InvalidSetting(f"there is no table with a column {table}.{column}")
    db, tbl, col = found["db"], found["tbl"], found["col"]
    place, obstacles = f"{db}.{tbl}.{col}", []
    if found["word"] not in WHOLE:
        obstacles.append(f"{place} is {found['type']}, and holds no whole numbers")
    if found["engine"] != "InnoDB":
        obstacles.append(f"{db}.{tbl} has the engine {found['engine']}; a takeover needs InnoDB")
    if connection.execute(text(CLUSTER)).all():
        obstacles.append(f"this server is a node of a cluster, where each node has its own {COUNTER}")
    if "MariaDB" not in found["version"] and int(found["version"].partition(".")[0]) < 8:
        obstacles.append(f"this is MySQL {found['version']}, and before 8.0 a restart sets {COUNTER} back")
    quoted_names = f"{quoted(db)}.{quoted(tbl)}", quoted(col)
    greatest = None
    if found["word"] in WHOLE and found["is_indexed"]:
        greatest = connection.exec_driver_sql(f"SELECT MAX({quoted_names[1]}) FROM {quoted_names[0]}").scalar()
    names = {"db": db, "tbl": tbl, "col": col, "ours": trigger_of(place)}
    facts = ColumnFacts(
        place,
        found["type"],
        limit_of(found["type"]),
        greatest or 0,
        is_whole=found["word"] in WHOLE,
        is_indexed=bool(found["is_indexed"]),
        is_key=bool(found["is_key"]),
        is_partitioned=bool(found["is_partitioned"]),
        is_replica=bool(found["is_replica"]),
        below=False,
        triggers=tuple(Trigger(*row) for row in connection.execute(text(TRIGGERS), names)),
        references=tuple(connection.scalars(text(REFERENCES), names)),
        quoted=quoted_names,
        obstacles=tuple(obstacles),
        generates=COUNTER if found["counts"] else "",
        remedy=remedy(quoted_names, found["type"], bool(found["counts"])),
    )
    if not found["counts"]:
        return facts
    limit = limit_of(found["type"])
    return replace(facts, counter=COUNTER, given=int(found["next"] or 1) - 1, ends=limit)


def remedy(names: tuple[str, str], kind: str, counts: bool) -> Remedy:
    """The statements for the user. MySQL refuses `drop` on a column that a foreign key references."""
    table, column = names
    altered = f"ALTER TABLE {table} MODIFY {column}"
    wide = "BIGINT UNSIGNED" if "unsigned" in kind.lower() else "BIGINT"
    own = f" {COUNTER}" * counts
    widen = f"{altered} {wide} NOT NULL{own}" if limit_of(kind) < MAX_ID else ""
    drop = f"{altered} {kind} NOT NULL" if counts else ""
    return Remedy(drop, widen, f"SELECT * FROM {table} WHERE {column} BETWEEN {{low}} AND {{high}}")


def is_refused(connection: Connection, place: str) -> bool:
    """Whether the trigger of a finished takeover exists, or this user lacks the right to see it."""
    asked = {"db": place.rsplit(".", 2)[0], "ours": trigger_of(place)}
    return bool(connection.scalar(text(OURS), asked))


def start(facts: ColumnFacts, ranges: Ranges) -> Sequence[str]:
    """The statements of `start`. Nobody writes between LOCK and UNLOCK, so the counter read there is exact."""
    return [PATIENCE, f"LOCK TABLES {facts.quoted[0]} WRITE", raised(facts, ranges.native_first), UNLOCK]


def carry_out_start(connection: Connection, dialect: Dialect, status: Status, tag: str, ranges: Ranges) -> None:
    """Raise the counter, and then let the tag give the ids below."""
    raise_counter(connection, status.facts, ranges)
    with dialect.transaction(connection):
        begin(connection, dialect, status, tag, ranges, ranges.native_first - 1)


def raise_counter(connection: Connection, facts: ColumnFacts, ranges: Ranges) -> None:
    """Raise the counter while the table is locked. Raises `InvalidSetting` if it has reached the ids of the tag."""
    patience, lock, alter, unlock = start(facts, ranges)
    connection.exec_driver_sql(patience)
    connection.exec_driver_sql(lock)
    try:
        database, table, _ = facts.place.rsplit(".", 2)
        given = int(connection.scalar(text(NEXT), {"db": database, "tbl": table}) or 1) - 1
        if given >= ranges.tag_first:
            raise passed(facts, given)
        connection.exec_driver_sql(alter)
    finally:
        if not connection.invalidated:  # as after Ctrl-C: then the lock went with the session
            connection.exec_driver_sql(unlock)


def finish(facts: ColumnFacts, takeover: Takeover) -> Sequence[str]:
    """The statements of `finish`: a trigger refuses an INSERT without an id."""
    (table, column), name = facts.quoted, quoted(trigger_of(facts.place))
    words = f"{facts.table.rpartition('.')[2]}.{facts.column} takes its ids from tag {takeover.tag}"[:128]
    body = f"IF COALESCE(NEW.{column}, 0) = 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = {literal(words)}; END IF"
    database = table.rpartition(".")[0]
    made = f"CREATE TRIGGER {database}.{name} BEFORE INSERT ON {table} FOR EACH ROW {body}"
    return [PATIENCE, f"DROP TRIGGER IF EXISTS {database}.{name}", made]


def carry_out_finish(connection: Connection, dialect: Dialect, status: Status, takeover: Takeover, idle: float) -> None:
    """Refuse inserts without an id, and then let the tag give all ids above the rows."""
    facts = status.facts
    run_each(connection, finish(facts, takeover))  # from here on nobody writes the old way
    given = fetch_facts(connection, *parts_of(facts.place)).reached
    ranges = Ranges(takeover.ranges.native_first, given, given + 1, facts.limit)
    with dialect.transaction(connection):
        place_tag(connection, dialect, takeover.tag, ranges, takeover)
        change(connection, takeover, "finished", ranges)


def back(facts: ColumnFacts, takeover: Takeover, ranges: Ranges) -> Sequence[str]:
    """The statements of `back`."""
    name = f"{facts.quoted[0].rpartition('.')[0]}.{quoted(trigger_of(facts.place))}"
    above = [raised(facts, ranges.native_first)] * (takeover.state in {"finished", "going back"})
    return [PATIENCE, *above, f"DROP TRIGGER IF EXISTS {name}"]


def carry_out_back(
    connection: Connection, dialect: Dialect, status: Status, takeover: Takeover, ranges: Ranges
) -> None:
    """Limit the tag before AUTO_INCREMENT is raised above it. The state "going back" says that this is done."""
    statements = back(status.facts, takeover, ranges)
    if takeover.state == "finished":
        with dialect.transaction(connection):
            place_tag(connection, dialect, takeover.tag, ranges, takeover)
            change(connection, takeover, "going back", ranges)
        takeover = replace(takeover, state="going back")
    run_each(connection, statements)
    with dialect.transaction(connection):
        change(connection, takeover, "given back", ranges)


def raised(facts: ColumnFacts, first: int) -> str:
    """The statement that raises AUTO_INCREMENT without a copy of the table."""
    return f"ALTER TABLE {facts.quoted[0]} AUTO_INCREMENT = {first}, ALGORITHM = INPLACE, LOCK = NONE"


def trigger_of(place: str) -> str:
    """The name of the trigger that refuses an INSERT without an id; hashed, as names of tables may be too long."""
    return f"allocator_takeover_{sha256(place.encode()).hexdigest()[:16]}"


def literal(words: str) -> str:
    return "'" + re.sub(r"[^\w.:\- ]", "?", words) + "'"
