"""The questions to PostgreSQL."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, func, select, text
from sqlalchemy import column as column_of
from sqlalchemy import table as table_of

from allocator.database.columns.tag_columns import Found
from allocator.database.doctor_queries.questions import (
    Facts,
    Question,
    Tools,
    ahead,
    by_pairs,
    by_row,
    listed,
    losing,
    others_of,
    rows,
)
from allocator.database.doctor_queries.table_shape import NUMBERED, TAG_COLUMNS
from allocator.database.postgresql.doctor_rules import RULES
from allocator.database.postgresql.identity import IS_DURABLE
from allocator.database.schema.tables import metadata
from allocator.errors import DatabaseRefused
from allocator.rules.tag_column import Generator, may_write

SETTINGS = (
    "SELECT name, setting FROM pg_settings WHERE name IN ("
    "'fsync', 'synchronous_commit', 'full_page_writes', 'transaction_read_only')"
)
"""As this role sees them in this database: a role or database may override what the server is configured with."""
ROLE = (
    "SELECT quote_ident(current_user) AS role, quote_ident(current_database()) AS database, "
    "pg_is_in_recovery() AS in_recovery"
)
MACHINE = "SELECT CAST(system_identifier AS text) AS machine FROM pg_control_system()"
COPIERS = ("pg_basebackup", "pg_receivewal")
"""Tools that copy the log. They are never promoted, so no ids are lost if they lag behind."""

MONITOR = "GRANT pg_monitor TO {role}"
NAMES = "unnest(CAST(:names AS text[])) AS name"
READ, ADD, CHANGE = "SELECT", "INSERT", "UPDATE"
NEEDED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("allocator_segment", "allocator_ticket", "allocator_ticket_counter"), (READ, ADD, CHANGE)),
    **dict.fromkeys(("allocator_worker", "allocator_failover", "allocator_lease"), (READ, ADD, CHANGE)),
    **dict.fromkeys(("allocator_shard", "allocator_token"), (READ,)),
    "allocator_node": (READ, ADD),
}
"""The rights that serving ids needs; docs/operating.md has those of other users too."""
SEQUENCE = "allocator_node_id_seq"
"""After a failover it is drawn from, to skip node numbers."""
TABLES = tuple(table.name for table in metadata.sorted_tables)
OTHERS = f"""
SELECT CASE grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(rolname) END AS role, rolcanlogin AS is_user,
       string_agg(DISTINCT CAST(CAST(t.oid AS regclass) AS text), ', ') AS places
FROM pg_class t CROSS JOIN LATERAL (
    SELECT grantee, privilege_type FROM aclexplode(relacl)
    UNION SELECT one.grantee, one.privilege_type FROM pg_attribute, aclexplode(attacl) AS one WHERE attrelid = t.oid
) AS granted LEFT JOIN pg_roles ON pg_roles.oid = grantee
WHERE t.oid IN (SELECT to_regclass(name) FROM {NAMES})
  AND privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
  AND grantee <> relowner AND rolname IS DISTINCT FROM current_user AND rolsuper IS NOT TRUE
  AND (pg_has_role(relowner, 'USAGE') OR NOT pg_has_role(grantee, 'USAGE'))
  AND (NOT relrowsecurity OR rolbypassrls IS TRUE OR EXISTS (
    SELECT FROM pg_policy, unnest(polroles) AS named WHERE polrelid = t.oid AND polcmd <> 'r'
    AND (grantee = 0 OR named = 0 OR pg_has_role(grantee, named, 'USAGE'))))
GROUP BY 1, 2 ORDER BY 1
"""
"""A role that is no owner may have its rights from groups that it is in; these are no others. Row level security with
no policy for a role lets it write nothing (but for TRUNCATE, which no API has)."""


def tables(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = rows(
        connection,
        "SELECT relname, relpersistence, row_security_active(oid) AS filtered, "
        "pg_has_role(relowner, 'USAGE') AS owned, has_any_column_privilege(oid, 'INSERT, UPDATE') AS writes "
        f"FROM pg_class WHERE oid = ANY (ARRAY(SELECT to_regclass(name) FROM {NAMES}))",
        names=list(TABLES),
    )
    return {
        "unlogged": [one.relname for one in found if one.relpersistence != "p"],
        "filtered": listed([one.relname for one in found if one.filtered]),
        "writes_tokens": any(one.writes and not one.owned for one in found if one.relname == "allocator_token"),
        "numbers_shards": any(one.writes and not one.owned for one in found if one.relname == "allocator_shard"),
    }


def others(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    sequences = [f"{name}_id_seq" for name in NUMBERED]
    found = rows(connection, OTHERS, names=[*TABLES, *sequences])
    return others_of((one.role, one.places, one.is_user) for one in found)


def lacking(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """The rights that the library needs and the role lacks."""
    wanted = [{"name": name, "verb": verb} for name, verbs in NEEDED.items() for verb in verbs]
    found = rows(
        connection,
        "SELECT verb || ' ON ' || quote_ident(nspname) || '.' || name AS words "
        "FROM json_to_recordset(CAST(:wanted AS json)) AS wanted(name text, verb text) "
        "JOIN pg_class ON pg_class.oid = to_regclass(name) JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE NOT has_table_privilege(pg_class.oid, verb) AND NOT (verb = 'UPDATE' AND name = 'allocator_segment' "
        "AND (SELECT bool_and(has_column_privilege(pg_class.oid, written, verb)) "
        "FROM unnest(ARRAY['max_value', 'server_run', 'skipped', 'claimed_at']) AS written)) "
        "UNION ALL SELECT 'USAGE ON SEQUENCE ' || quote_ident(nspname) || '.' || relname FROM pg_class "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE pg_class.oid = to_regclass(:sequence) AND NOT has_sequence_privilege(pg_class.oid, 'USAGE')",
        wanted=json.dumps(wanted),
        sequence=SEQUENCE,
    )
    return {
        "lacking": listed([one.words for one in found]),
        "grant": " ".join(f"GRANT {one.words} TO {facts['role']};" for one in found),
    }


def durability(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """What lets a crash lose commits. Claims are durable whatever `synchronous_commit` is: see `Dialect.lasting`."""
    is_durable = bool(connection.exec_driver_sql(f"SELECT {IS_DURABLE}").scalar())
    off = [] if is_durable else [name for name in ("fsync", "full_page_writes") if facts[name] == "off"]
    losses, mends = [f"{name} is off" for name in off], [f"ALTER SYSTEM SET {name} = on" for name in off]
    mends += ["SELECT pg_reload_conf()"] * bool(off)
    if facts["synchronous_commit"] == "off":
        role, database = facts["role"], facts["database"]
        losses.append(f"synchronous_commit is off for {role} in {database} (loses changes by operators, no claims)")
        mends.append(f"ALTER ROLE {role} IN DATABASE {database} SET synchronous_commit = on")
    for name in facts.get("unlogged", ()):
        losses.append(f"{name} is unlogged, and then empty")
        mends.append(f"ALTER TABLE {name} SET LOGGED")
    return losing(losses, "; ".join(mends), is_durable)


def copies(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = rows(
        connection,
        "SELECT relname, string_agg(nspname, ', ' ORDER BY array_position(current_schemas(false), nspname)) AS schemas "
        "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE relname = ANY (:names) AND relkind IN ('r', 'p') AND nspname = ANY (current_schemas(false)) "
        "GROUP BY relname HAVING count(*) > 1 ORDER BY relname",
        names=list(TABLES),
    )
    return {"copies": "; ".join(f"{one.relname} in {one.schemas}" for one in found)}


def collations(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = rows(
        connection,
        "SELECT relname, attname, collname FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
        "JOIN pg_collation ON pg_collation.oid = attcollation "
        f"WHERE NOT collisdeterministic AND attrelid IN (SELECT to_regclass(name) FROM {NAMES})",
        names=list(TAG_COLUMNS),
    )
    astray = [one for one in found if TAG_COLUMNS[one.relname] == one.attname]
    return {
        "collations": listed([f"{one.relname}.{one.attname} has {one.collname}" for one in astray]),
        "recollate": "; ".join(
            f'ALTER TABLE {one.relname} ALTER COLUMN {one.attname} TYPE VARCHAR(64) COLLATE "C"' for one in astray
        ),
    }


def standbys(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    found = rows(
        connection,
        "SELECT application_name, sync_state FROM pg_stat_replication WHERE pid NOT IN "
        "(SELECT active_pid FROM pg_replication_slots WHERE slot_type = 'logical' AND active_pid IS NOT NULL)",
    )
    if any(one.sync_state is None for one in found):
        raise DatabaseRefused("this role may not read pg_stat_replication")
    states = Counter(one.sync_state for one in found)
    behind = [
        one.application_name for one in found if one.sync_state == "async" and one.application_name not in COPIERS
    ]
    return {"has_asynchronous_standby": bool(behind) and not states["sync"] + states["quorum"]}


def clock(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    words = "SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"
    return ahead(facts, connection.exec_driver_sql(words).scalar_one())


def numberings(connection: Connection, facts: Facts) -> Mapping[str, Any]:
    """The sequences of numbered columns. Only a role with SELECT on a sequence may read its position."""
    found = rows(
        connection,
        "SELECT name, CAST(sequence AS text) AS sequence, seqcycle, seqcache, "
        "has_sequence_privilege(sequence, 'SELECT') AS readable "
        "FROM (SELECT name, CAST(pg_get_serial_sequence(name, 'id') AS regclass) AS sequence "
        f"FROM {NAMES}) AS numbered LEFT JOIN pg_sequence ON seqrelid = sequence",
        names=list(NUMBERED),
    )
    lost = [one.name for one in found if one.sequence is None]
    behind = [words for one in found if one.readable and (words := behind_by(connection, one.name, one.sequence))]
    return {
        "unnumbered": listed(lost),
        "renumber": "; ".join(
            f"ALTER TABLE {name} ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY" for name in lost
        ),
        "cycling": listed([one.sequence for one in found if one.seqcycle]),
        "caching": listed([f"{one.sequence} has CACHE {one.seqcache}" for one in found if (one.seqcache or 1) > 1]),
        "behind": listed(behind),
    }


def behind_by(connection: Connection, table_name: str, sequence: str) -> str:
    """A sentence if the sequence is about to repeat a number, as after a restore of the rows alone; else empty."""
    ids = metadata.tables[table_name].c.id
    greatest = connection.scalar(select(func.max(ids))) or 0
    words = f"SELECT last_value + CASE WHEN is_called THEN 1 ELSE 0 END FROM {sequence}"
    following = connection.exec_driver_sql(words).scalar_one()
    return f"the next number of {table_name} is {following}, and {greatest} is in use" if following <= greatest else ""


QUESTIONS = (
    Question("the server's settings", by_pairs(SETTINGS)),
    Question("the role", by_row(ROLE)),
    Question("the tables' owner and rights", tables, of_tables=True),
    Question("the rights of others", others, of_tables=True),
    Question("the rights that are needed", lacking, of_tables=True),
    Question("what a crash loses", durability),
    Question("copies of the tables", copies),
    Question("the collation of tags", collations, of_tables=True),
    Question("the standbys of this server", standbys, MONITOR),
    Question("the server's clock", clock),
    Question("the numbering of tickets and nodes", numberings, of_tables=True),
    Question("the identity of the server", by_row(MACHINE)),
)


WHOLE = """
WITH RECURSIVE whole AS (
    SELECT oid, format_type(oid, NULL) AS type FROM pg_type
    WHERE oid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype)
    UNION ALL SELECT pg_type.oid, whole.type FROM pg_type JOIN whole ON typbasetype = whole.oid
)"""
"""Recursive, since a domain over a whole number may be over another domain."""
COLUMN = f"""{WHOLE}
SELECT nspname, relname, attname, COALESCE(whole.type, format_type(atttypid, atttypmod)) AS type,
       whole.type IS NOT NULL AS is_whole,
       EXISTS (SELECT 1 FROM pg_index JOIN pg_class i ON i.oid = indexrelid JOIN pg_am ON pg_am.oid = i.relam
               WHERE indrelid = pg_class.oid AND indisvalid AND indpred IS NULL AND indkey[0] = attnum
               AND amname = 'btree') AS is_indexed,
       pg_class.oid AS relid, attnum, attidentity <> '' AS is_identity, pg_get_expr(adbin, adrelid) AS default_words,
       quote_ident(nspname) || '.' || quote_ident(relname) AS quoted_table, quote_ident(attname) AS quoted_column
FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
JOIN pg_attribute ON attrelid = pg_class.oid AND attname = :column AND NOT attisdropped
LEFT JOIN whole ON whole.oid = atttypid LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE pg_class.oid = to_regclass(:name) AND relkind IN ('r', 'p')
"""
SEQUENCES = """
SELECT quote_ident(nspname) || '.' || quote_ident(relname) AS name, nspname, relname, seqincrement, seqmax,
       seqcycle,
       (SELECT count(*) FROM pg_depend WHERE classid = 'pg_attrdef'::regclass AND refobjid = seqrelid) AS users
FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE seqrelid IN (
    SELECT objid FROM pg_depend WHERE classid = 'pg_class'::regclass AND refclassid = 'pg_class'::regclass
    AND refobjid = :relid AND refobjsubid = :attnum AND deptype = 'i'
    UNION SELECT refobjid FROM pg_attrdef JOIN pg_depend ON objid = pg_attrdef.oid
    WHERE classid = 'pg_attrdef'::regclass AND refclassid = 'pg_class'::regclass AND adrelid = :relid
    AND adnum = :attnum
)
"""
TRIGGERS = """
SELECT quote_ident(tgname), CASE lanname WHEN 'plpgsql' THEN prosrc WHEN 'internal' THEN 'built in' ELSE '' END
FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid JOIN pg_language ON pg_language.oid = prolang
WHERE tgrelid = :relid AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 7 = 7
"""
"""Triggers that run before each inserted row. A built-in function writes no key."""
PLAIN = re.compile(r"nextval\('([^']|'')*'::regclass\)")


def fetch_column(connection: Connection, schema: str, table: str, column: str) -> Found | None:
    name = ".".join('"' + part.replace('"', '""') + '"' for part in (schema, table) if part)
    row = connection.execute(text(COLUMN), {"name": name, "column": column}).first()
    if row is None:
        return None
    triggers = connection.execute(text(TRIGGERS), {"relid": row.relid})
    writing = [
        Generator(f"the trigger {name}", f"DROP TRIGGER {name} ON {row.quoted_table}")
        for name, body in triggers
        if may_write(body, column)
    ]
    if row.is_identity or "(" in (row.default_words or ""):  # a constant default generates nothing
        writing.append(default_of(connection, row))
    return Found._make((*row[:6], tuple(writing)))


def default_of(connection: Connection, row: Row[Any]) -> Generator:
    """The default or the identity of a column, with the range of its sequence where that is known."""
    altered = f"ALTER TABLE {row.quoted_table} ALTER COLUMN {row.quoted_column}"
    found = connection.execute(text(SEQUENCES), {"relid": row.relid, "attnum": row.attnum}).all()
    drop = f"{altered} DROP {'IDENTITY' if row.is_identity else 'DEFAULT'}"
    made = Generator("identity" if row.is_identity else f"DEFAULT {row.default_words}", drop)
    is_plain = row.is_identity or PLAIN.fullmatch(row.default_words)
    if not is_plain or len(found) != 1:
        return made
    (one,) = found
    if one.seqcycle or one.seqincrement < 1:
        return made
    sequence = table_of(one.relname, column_of("last_value"), column_of("is_called"), schema=one.nspname)
    last, is_called = connection.execute(select(sequence)).one()
    following = last + one.seqincrement if is_called else last
    made = made._replace(next=following, ends=one.seqmax, is_below=True)
    hold = f"{altered} SET GENERATED BY DEFAULT SET" if row.is_identity else f"ALTER SEQUENCE {one.name}"
    return made if one.users > 1 else made._replace(hold=f"{hold} MAXVALUE {{n}}")


TOOLS = Tools(QUESTIONS, RULES, fetch_column)
