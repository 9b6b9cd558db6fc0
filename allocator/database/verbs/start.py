"""Fetch all that a process needs before its first id, by one statement: one round trip instead of ten."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection

from allocator.database import schema
from allocator.database.dialect import Dialect, filled, run_of
from allocator.database.tables import REVISIONS
from allocator.database.verbs.segments import as_tag
from allocator.database.verbs.shard_row import as_shard
from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import Residue
from allocator.schemes.slots import Shard
from allocator.schemes.tag import Tag

START = """
SELECT {facts},
    tag, max_value, step, max_step, id_limit, shard_offset, shard_step, allocator_segment.move,
    failover_gap, skipped, claimed_at,
    id, fleet, slot, slots, taken, taken_under, taken_for, tickets,
    server_run, allocator_shard.move AS last_move, new_tags_above, moved_at
FROM (SELECT 1 AS one) AS always  -- what the server tells of itself is wanted also from empty tables
LEFT JOIN allocator_segment ON tag = :name
LEFT JOIN allocator_shard ON id = one
"""
REVISION = "(SELECT max(version_num) FROM allocator_schema_version)"


class Start(NamedTuple):
    """The rows at one moment.

    run: the server run, as the shard's row names it if it is the same.
    at: the clock of the server, in milliseconds since 1970.
    numbering: the server's configured auto-increment offset and step, as one of several without a cluster.
    """

    tag: Tag | None
    shard: Shard | None
    run: str
    at: int
    numbering: Residue


def fetch(connection: Connection, dialect: Dialect, where: str, name: str, with_revision: bool) -> Start:
    """`name` names a tag. Raises `SchemaOutOfDate` at another revision where it is asked for, and `SchemaDamaged`."""
    facts = {"run": connection.info.get("asked") or run_of(connection), **dialect.facts}
    facts["revision"] = REVISION if with_revision else "NULL"
    asked = ", ".join([f"{words} AS {name}" for name, words in facts.items()])
    row = connection.execute(filled(START, facts=asked), {"name": name}).one()
    if with_revision and row.revision not in REVISIONS:
        raise schema.unlike(row.revision, where)
    if row.mends:
        raise schema.repeating(row.mends, where)
    shard = None if row.id is None else as_shard(row)
    run, numbering = dialect.server_run(connection, row, shard.move if shard else Move())
    return Start(None if row.tag is None else as_tag(row), shard, run, int(row.at), numbering)
