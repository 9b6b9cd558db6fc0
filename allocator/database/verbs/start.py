"""Fetch all that a process needs before its first id, by one statement: one round trip instead of ten."""

from __future__ import annotations

from functools import cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from sqlalchemy import (
    Connection,
    Select,
    Table,
    bindparam,
    column,
    func,
    literal,
    literal_column,
    null,
    select,
    table,
)

from allocator.database.dialect import Dialect
from allocator.database.schema import inspection
from allocator.database.schema.tables import REVISIONS, VERSION_TABLE, failover, node, segment, shard
from allocator.database.verbs.segments import as_tag
from allocator.database.verbs.shard_row import as_shard
from allocator.rules.failover import Failover, Here
from allocator.rules.fleet_consistency import Shard
from allocator.schemes.tag import Tag
from allocator.schemes.ticket import ShardNumbering


class Start(NamedTuple):
    """The rows at one moment.

    here: the server run, compared with the one in `failover`.
    here_of_tag: the server run, compared with the one in `tag`.
    server: the identity that fences the tickets of several shards; None where a query must fetch it, as for an engine
        without runs.
    numbering: the server's configured auto-increment offset and step, as one of several without a cluster.
    """

    revision: str | None
    tag: Tag | None
    shard: Shard | None
    failover: Failover | None
    here: Here
    here_of_tag: Here
    server: str | None
    numbering: ShardNumbering | None
    last_node: int

    @property
    def is_alone(self) -> bool:
        """Whether no other shard gives tickets of the same types."""
        return self.shard is None or self.shard.numbering.step == 1


def fetch(
    connection: Connection,
    dialect: Dialect,
    where: str,
    name: str,
    with_nodes: bool,
    with_revision: bool,
) -> Start:
    """`name` names a tag. Raises `SchemaOutOfDate` at another revision where it is asked for, and `SchemaDamaged`."""
    facts = tuple(dialect.facts(connection).items())
    first = connection.execute(statement(facts, with_nodes, with_revision), {"name": name}).one()
    tag, own, kept = part(first, segment), part(first, shard), part(first, failover)
    if with_revision and first.revision not in REVISIONS:
        raise inspection.unlike(first.revision, where)
    if first.mends:
        raise inspection.repeating(first.mends, where)
    state = Failover(*(getattr(kept, name) for name in Failover._fields)) if kept else None
    return Start(
        first.revision,
        as_tag(tag) if tag else None,
        as_shard(own, state) if own else None,
        state,
        dialect.here(connection, first, state.run if state else ""),
        dialect.here(connection, first, tag.server_run if tag else ""),
        dialect.identity(connection, first),
        dialect.server_numbering(first),
        first.last_node or 0,
    )


@cache
def statement(facts: tuple[tuple[str, str], ...], with_nodes: bool, with_revision: bool) -> Select[Any]:
    revision = select(func.max(column("version_num"))).select_from(table(VERSION_TABLE)).scalar_subquery()
    last_node = select(func.max(node.c.id)).scalar_subquery()
    # Joined to one row that is always there: the facts of the server are wanted also from empty tables.
    rows = (
        select(literal(1).label("one"))
        .subquery("one")
        .outerjoin(segment, segment.c.tag == bindparam("name"))
        .outerjoin(failover, failover.c.id == 1)
        .outerjoin(shard, shard.c.id == 1)
    )
    return select(
        (revision if with_revision else null()).label("revision"),
        (last_node if with_nodes else null()).label("last_node"),
        *(literal_column(words).label(name) for name, words in facts),
        *segment.c,
        *failover.c,
        *shard.c,
    ).select_from(rows)


def part(row: Any, of: Table) -> Any:
    """The columns of one table; None without a row."""
    found = SimpleNamespace(**{one.name: row._mapping[one] for one in of.c})
    return None if getattr(found, of.primary_key.columns[0].name) is None else found
