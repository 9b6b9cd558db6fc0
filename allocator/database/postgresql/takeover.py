"""Takeover of a column of PostgreSQL: its sequence keeps the lower range, limited by MAXVALUE."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, RowMapping, text

from allocator.database.columns.takeovers import Status, begin, change, parts_of, place_tag, run_each
from allocator.database.dialect import Dialect
from allocator.database.postgresql.doctor_queries import WHOLE
from allocator.errors import InvalidSetting
from allocator.rules.column_limit import limit_of
from allocator.rules.takeover_ranges import ColumnFacts, Ranges, Remedy, Takeover, Trigger, passed, still_writes
from allocator.schemes.shared.argument_checks import MAX_ID

IDENTITY = "identity"
"""The value of `Takeover.counter` for an identity column; for others it is the name of the sequence."""
PATIENCE = "SET LOCAL lock_timeout = '500ms'"
"""A longer wait for a lock would make writers queue behind it."""
FORMER_PATIENCE = "SELECT 'SET LOCAL lock_timeout = ' || quote_literal(current_setting('lock_timeout'))"
"""Returns the statement that restores the caller's own timeout, which holds until its transaction ends."""

COLUMN = f"""{WHOLE}
SELECT pg_class.oid AS relid, attnum, quote_ident(nspname) || '.' || quote_ident(relname) AS quoted_table,
       quote_ident(attname) AS quoted_column, nspname || '.' || relname || '.' || attname AS place,
       COALESCE(whole.type, format_type(atttypid, atttypmod)) AS type, whole.type IS NOT NULL AS is_whole,
       attidentity <> '' AS is_identity, attidentity = 'a' AS is_always, pg_get_expr(adbin, adrelid) AS default_words,
       pg_is_in_recovery() AS is_replica,
       relkind = 'p' OR relispartition OR EXISTS (
           SELECT 1 FROM pg_inherits WHERE inhparent = pg_class.oid OR inhrelid = pg_class.oid) AS is_partitioned,
       EXISTS (SELECT 1 FROM pg_index WHERE indrelid = pg_class.oid AND indisunique AND indisvalid AND indpred IS NULL
               AND indnkeyatts = 1 AND indkey[0] = attnum) AS is_key,
       EXISTS (SELECT 1 FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_am ON pg_am.oid = i.relam
               WHERE indrelid = pg_class.oid AND indisvalid AND indpred IS NULL AND indkey[0] = attnum
               AND amname = 'btree') AS is_indexed,
       ARRAY(SELECT rulename::text FROM pg_rewrite WHERE ev_class = pg_class.oid AND ev_type = '3') AS rules,
       ARRAY(SELECT conrelid::regclass::text FROM pg_constraint
             WHERE contype = 'f' AND confrelid = pg_class.oid AND confkey = ARRAY[attnum] ORDER BY 1) AS refs
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_attribute ON attrelid = pg_class.oid AND attname = :column AND NOT attisdropped
LEFT JOIN whole ON whole.oid = atttypid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE pg_class.oid = to_regclass(:name) AND relkind IN ('r', 'p')
"""
SEQUENCES = """
SELECT quote_ident(nspname) || '.' || quote_ident(relname) AS name, seqincrement, seqcache, seqmax, seqcycle,
       (SELECT count(*) FROM pg_depend WHERE classid = 'pg_attrdef'::regclass AND refobjid = seqrelid) AS users
FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE seqrelid IN (
    SELECT objid FROM pg_depend WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass
    AND refobjid = :relid AND refobjsubid = :attnum AND deptype = 'i'
    UNION SELECT refobjid FROM pg_attrdef JOIN pg_depend ON objid = pg_attrdef.oid
    WHERE classid = 'pg_attrdef'::regclass AND refclassid = 'pg_class'::regclass AND adrelid = :relid
    AND adnum = :attnum
) OR seqrelid = to_regclass(:known)
"""
TRIGGERS = """
SELECT tgname, CASE lanname WHEN 'plpgsql' THEN prosrc WHEN 'internal' THEN 'built in' ELSE '' END
FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid JOIN pg_language ON pg_language.oid = prolang
WHERE tgrelid = :relid AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 7 = 7
"""
"""Triggers that run before each inserted row. A built-in function writes no key."""
HOLDER = """
SELECT a.pid, usename, client_addr, application_name FROM pg_locks JOIN pg_stat_activity a USING (pid)
WHERE granted AND relation IN (to_regclass(:table), to_regclass(:sequence)) AND datname = current_database()
  AND pid <> pg_backend_pid() ORDER BY xact_start LIMIT 1
"""
END, FIND = "SELECT pg_terminate_backend({})", "SELECT * FROM pg_stat_activity WHERE xact_start IS NOT NULL"
"""For the message to the operator: end session {}, or find it where this user may not read which it is."""
PLAIN = re.compile(r"nextval\('[^']*'::regclass\)")


def fetch_facts(connection: Connection, schema: str, table: str, column: str, counter: str = "") -> ColumnFacts:
    """Fetch the facts of a column, and of the sequence that counts for it. Raises `InvalidSetting` for no such column.

    counter: of an earlier takeover; the sequence still exists after the default is gone.
    """
    name = ".".join(quoted(part) for part in (schema, table) if part)
    found = connection.execute(text(COLUMN), {"name": name, "column": column}).mappings().first()
    if found is None:
        raise InvalidSetting(f"there is no table with a column {table}.{column}".replace("..", "."))
    known = None if counter == IDENTITY else counter or None
    where = {"relid": found["relid"], "attnum": found["attnum"], "known": known}
    sequences = connection.execute(text(SEQUENCES), where).mappings().all()
    triggers = [Trigger(*row) for row in connection.execute(text(TRIGGERS), {"relid": found["relid"]})]
    facts = facts_of(found, triggers, fetch_greatest(connection, found))
    if len(sequences) != 1:
        return facts
    (sequence,) = sequences
    last, called = connection.exec_driver_sql(f"SELECT last_value, is_called FROM {sequence['name']}").one()
    return with_sequence(facts, found, sequence, last if called else last - sequence["seqincrement"])


def fetch_greatest(connection: Connection, found: RowMapping) -> int:
    """The greatest value, by the end of the index; 0 where there is no index, or no row."""
    if not found["is_whole"] or not found["is_indexed"]:
        return 0
    statement = f"SELECT max({found['quoted_column']}) FROM {found['quoted_table']}"
    return connection.exec_driver_sql(statement).scalar() or 0


def facts_of(found: RowMapping, triggers: Sequence[Trigger], greatest: int) -> ColumnFacts:
    """The facts of a column without its sequence, from a row of `COLUMN`."""
    table = found["place"].rpartition(".")[0]
    obstacles = [f"the rule {rule} on {table} rewrites inserts" for rule in found["rules"]]
    if not found["is_whole"]:
        obstacles.insert(0, f"{found['place']} is {found['type']}, and holds no whole numbers")
    return ColumnFacts(
        found["place"],
        found["type"],
        limit_of(found["type"]),
        greatest,
        is_whole=found["is_whole"],
        is_indexed=found["is_indexed"],
        is_key=found["is_key"],
        is_partitioned=found["is_partitioned"],
        is_replica=found["is_replica"],
        triggers=tuple(triggers),
        references=tuple(found["refs"]),
        quoted=(found["quoted_table"], found["quoted_column"]),
        obstacles=tuple(obstacles),
        generates=generator(found),
        remedy=remedy(found),
    )


def with_sequence(facts: ColumnFacts, found: RowMapping, sequence: RowMapping, given: int) -> ColumnFacts:
    """The facts with those of the sequence, from a row of `SEQUENCES`."""
    name, default, obstacles = sequence["name"], found["default_words"], []
    if sequence["users"] > 1:
        obstacles.append(f"the sequence {name} also serves another column")
    if sequence["seqcycle"]:
        obstacles.append(f"the sequence {name} restarts at its end (CYCLE); run: ALTER SEQUENCE {name} NO CYCLE")
    if default and not PLAIN.fullmatch(default):
        obstacles.append(f"the default of {facts.place} is {default}, and not nextval alone")
    return replace(
        facts,
        counter=IDENTITY if found["is_identity"] else name,
        given=given,
        ends=sequence["seqmax"],
        increment=sequence["seqincrement"],
        cache=sequence["seqcache"],
        sequence=name,
        always=found["is_always"],
        obstacles=(*facts.obstacles, *obstacles),
    )


def generator(found: RowMapping) -> str:
    """What supplies the id of an INSERT without one; a constant default does not count."""
    default = found["default_words"] or ""
    return IDENTITY if found["is_identity"] else f"DEFAULT {default}" if "(" in default else ""


def remedy(found: RowMapping) -> Remedy:
    table, column = found["quoted_table"], found["quoted_column"]
    altered = f"ALTER TABLE {table} ALTER COLUMN {column}"
    drop = f"{altered} DROP {'IDENTITY' if found['is_identity'] else 'DEFAULT'}" if generator(found) else ""
    widen = f"{altered} TYPE bigint" if limit_of(found["type"]) < MAX_ID else ""
    return Remedy(drop, widen, f"SELECT * FROM {table} WHERE {column} BETWEEN {{low}} AND {{high}}")


def start(facts: ColumnFacts, ranges: Ranges) -> Sequence[str]:
    """The statements of `start`. They lock the table first, as an INSERT does: another order would deadlock."""
    table, column = facts.quoted
    allow = [f"ALTER TABLE {table} ALTER COLUMN {column} SET GENERATED BY DEFAULT"] * facts.always
    return [PATIENCE, *allow, f"ALTER SEQUENCE {facts.sequence} MAXVALUE {ranges.native_last}"]


def carry_out_start(connection: Connection, dialect: Dialect, status: Status, tag: str, ranges: Ranges) -> None:
    """Raises `InvalidSetting` if the counter has passed its range before the lock."""
    facts = status.facts
    with dialect.transaction(connection):
        run_each(connection, start(facts, ranges))
        # After the statements, whose locks keep writers from the counter: it is exact now.
        now = fetch_facts(connection, *parts_of(facts.place))
        if now.reached > ranges.native_last:
            raise passed(facts, now.reached)
        begin(connection, dialect, status, tag, ranges, now.given)


def finish(facts: ColumnFacts, takeover: Takeover) -> Sequence[str]:
    """The statements of `finish`; the first sets the lock timeout."""
    table, column = facts.quoted
    what = "DROP IDENTITY IF EXISTS" if takeover.counter == IDENTITY else "DROP DEFAULT"
    return [PATIENCE, f"ALTER TABLE {table} ALTER COLUMN {column} {what}"]


def carry_out_finish(connection: Connection, dialect: Dialect, status: Status, takeover: Takeover, idle: float) -> None:
    """Drop the default, unless a writer has used the counter since."""
    patience, *statements = finish(status.facts, takeover)
    with dialect.transaction(connection):
        connection.exec_driver_sql(patience)
        given = fetch_facts(connection, *parts_of(status.facts.place), takeover.counter).given
        if why := still_writes(takeover, given, status.now_ms, idle):
            raise InvalidSetting(why)
        run_each(connection, statements)
        change(connection, takeover, "finished", takeover.ranges)


def back(facts: ColumnFacts, takeover: Takeover, ranges: Ranges) -> Sequence[str]:
    """The statements of `back`. BY DEFAULT even if it was ALWAYS: writers that still insert ids must not fail."""
    (table, column), first = facts.quoted, ranges.native_first
    if takeover.counter == IDENTITY and not facts.counter:
        given = f"GENERATED BY DEFAULT AS IDENTITY (START WITH {first})"
        return [PATIENCE, f"ALTER TABLE {table} ALTER COLUMN {column} ADD {given}"]
    words = facts.sequence.replace("'", "''")
    default = [f"ALTER TABLE {table} ALTER COLUMN {column} SET DEFAULT nextval('{words}'::regclass)"]
    raised = f"ALTER SEQUENCE {facts.sequence} AS {facts.type} NO MAXVALUE RESTART WITH {first}"
    return [PATIENCE, *default * (takeover.state == "finished"), raised]


def carry_out_back(
    connection: Connection, dialect: Dialect, status: Status, takeover: Takeover, ranges: Ranges
) -> None:
    """Restart the counter above all ids, and limit the tag below it."""
    with dialect.transaction(connection):
        run_each(connection, back(status.facts, takeover, ranges))
        place_tag(connection, dialect, takeover.tag, ranges, takeover)
        change(connection, takeover, "given back", ranges)


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
