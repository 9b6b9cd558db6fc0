"""The rows of `allocator_segment`: claimed from, fetched, made and changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Column, ColumnElement, Connection, bindparam, case, delete, exists, literal, select, update

from allocator.database import schema
from allocator.database.dialect import Dialect, filled
from allocator.database.tables import REVISIONS, segment, shard
from allocator.database.verbs import shard_row
from allocator.database.verbs.tickets import IS_OF_TICKETS
from allocator.schemes.failover import Move, beginning, crossing
from allocator.schemes.shared.residues import NONE, Residue
from allocator.schemes.slots import Shard
from allocator.schemes.tag import AUTO, REFUSE, FailoverGap, Tag, is_of_tickets
from allocator.schemes.ticket import CLAIM as BY_CLAIM

READ = select(segment)
READ_ONE = READ.where(segment.c.tag == bindparam("name"))
READ_ALL = READ.order_by(segment.c.tag)
READ_SOME = READ_ALL.where(segment.c.tag > bindparam("after"), ~IS_OF_TICKETS)

GAPS: dict[int, FailoverGap] = {-2: AUTO, -1: REFUSE}
"""What the column `failover_gap` holds for them; any other number is one of ids."""

CLAIM = """
UPDATE allocator_segment SET  -- MySQL assigns from left to right
    skipped = skipped + :skip,
    claimed_at = {clock},
    move = :shard_move,
    max_value = {keep}(max_value + :skip + :span)  -- the gap after a failover, or 0, and what is claimed
WHERE tag = :name
    AND max_value <= id_limit - :skip - :span  -- the limit of the tag, and no overflow
    AND max_value >= :seen - :skip  -- the new ids are above those that this process has seen
    AND shard_offset = :residue_offset AND shard_step = :residue_step  -- the ids of this database
    AND move = :row_move  -- nobody else has skipped the gap meanwhile
    AND {run} = :run  -- the server is the one that this process knows
    AND EXISTS (SELECT 1 FROM allocator_shard WHERE move = :shard_move AND server_run = :run)  -- and so are its rows
    AND {lasting}  -- the commit waits for the disk
{returning}
"""
SNAPSHOT = """
SELECT {run} AS run, {clock} AS at, {mends} AS mends, {revision} AS revision{facts},
    tag, max_value, step, max_step, id_limit, shard_offset, shard_step, allocator_segment.move,
    failover_gap, skipped, claimed_at,
    id, fleet, slot, slots, taken, taken_under, taken_for, tickets,
    server_run, allocator_shard.move AS last_move, new_tags_above, moved_at
FROM (SELECT 1 AS one) AS always  -- what the server tells of itself is wanted also from empty tables
LEFT JOIN allocator_segment ON tag = :name
LEFT JOIN allocator_shard ON id = one
"""
REVISION = "(SELECT max(version_num) FROM allocator_schema_version)"


class Fence(NamedTuple):
    """What the rows must be, as they were read: the statement checks each again.

    residue: of the database. A row of another one does not match: the tag is closed, or its database is in a fleet now.
    row_move: the key of the move in the tag's row.
    shard_move, run: the key in the shard's row, and the server run there, which is also the one that answers.
    skip: the numbers that the tag skips, 0 where both keys are one.
    """

    residue: Residue
    row_move: int
    shard_move: int
    run: str
    skip: int = 0


class Snapshot(NamedTuple):
    """The rows at one moment.

    run: the server run, as the shard's row names it if it is the same.
    at: the clock of the server, in milliseconds since 1970.
    numbering: the server's configured auto-increment offset and step, as one of several without a cluster.
    is_made: whether the shard's row is there; else `shard` says nothing.
    """

    tag: Tag | None
    shard: Shard
    run: str
    at: int
    numbering: Residue
    is_made: bool = True


def claim(connection: Connection, dialect: Dialect, name: str, size: int, fence: Fence, seen: int) -> int | None:
    """Claim the next `size` ids of a residue: one round trip.

    Returns the end of their window, or None where no row matched: the tag is missing, too close to its limit, or
    not as in `fence`; the database has moved; or the row is below `seen`. Such a row is not raised: others may claim
    from it what a third process still holds, so no further id is safe.
    """
    parameters: dict[str, object] = {
        "name": name,
        "span": size * fence.residue.step,
        "skip": fence.skip,
        "seen": seen,
        "residue_offset": fence.residue.offset,
        "residue_step": fence.residue.step,
        "row_move": fence.row_move,
        "shard_move": fence.shard_move,
        "run": fence.run,
    }
    statement = filled(CLAIM, connection.info["allocator_run"], dialect.words)
    return dialect.claim(connection, statement, parameters, name)


def fetch(connection: Connection, dialect: Dialect, name: str) -> Tag | None:
    row = connection.execute(READ_ONE, {"name": name}).first()
    return as_tag(row) if row else None


def fetch_all(connection: Connection, dialect: Dialect) -> list[Tag]:
    return [as_tag(row) for row in connection.execute(READ_ALL)]


def fetch_page(connection: Connection, dialect: Dialect, after: str, most: int) -> list[Tag]:
    """Fetch the tags after `after`, in byte order; fewer than `most` only at the end."""
    return [as_tag(row) for row in connection.execute(READ_SOME.limit(most), {"after": after})]


def fetch_snapshot(connection: Connection, dialect: Dialect, where: str, name: str, with_revision: bool) -> Snapshot:
    """Fetch all that a process needs before its first id, by one statement: one round trip instead of ten.

    `name` names a tag. Raises `SchemaOutOfDate` at another revision where it is asked for, and `SchemaDamaged`.
    """
    run = connection.info.get("allocator_asked") or connection.info["allocator_run"]
    statement = filled(SNAPSHOT, run, dialect.words, revision=REVISION if with_revision else "NULL")
    row = connection.execute(statement, {"name": name}).one()
    if with_revision and row.revision not in REVISIONS:
        raise schema.unlike(row.revision, where)
    if row.mends:
        raise schema.repeating(row.mends, where)
    tag, is_made = None if row.tag is None else as_tag(row), row.id is not None
    known = shard_row.as_shard(row) if is_made else Shard()
    run, numbering = dialect.server_run(connection, row, known.move)
    return Snapshot(tag, known, run, int(row.at), numbering, is_made)


def make(connection: Connection, dialect: Dialect, tag: Tag, known: Shard) -> bool:
    """Make the row; False if there is one, or if the shard's row is not as `known`, which says where a tag begins. In a
    transaction, as all that writes the shard's row."""
    return shard_row.write(connection, dialect, known) and insert(connection, dialect, tag, known)


def insert(connection: Connection, dialect: Dialect, tag: Tag, known: Shard) -> bool:
    """Insert the row; False if there is one, or of tickets where REPLACE draws them.

    It has the fence too, since a migration may commit each statement.
    """
    conditions = [~exists().where(segment.c.tag == tag.name)]  # SQLite's guard would refuse it first
    if is_of_tickets(tag.name):
        conditions.append(shard.c.tickets == BY_CLAIM)  # a type is made where its tickets are claimed
    made = shard_row.insert_under(
        connection, dialect, known, segment, row_of(tag, known), *conditions, end=dialect.words.or_nothing
    )
    return connection.execute(made.prefix_with(dialect.words.ignore)).rowcount == 1


def make_or_change(
    connection: Connection, dialect: Dialect, tag: Tag, changes: Mapping[str, FailoverGap], known: Shard
) -> bool:
    """Make a tag, or change the one there; False if the shard's row is not as `known`, or the change invalid."""
    if not shard_row.write(connection, dialect, known):
        return False
    return insert(connection, dialect, tag, known) or change(connection, dialect, tag.name, changes)


def close(connection: Connection, dialect: Dialect, tag: Tag, known: Shard) -> bool:
    """Close a tag: nothing is claimed from it any more, and where it is missing nobody makes it. False if a claim has
    raised it, or a failover may have forgotten one, or if the shard's row is not as `known`."""
    if not shard_row.write(connection, dialect, known):
        return False
    insert(connection, dialect, beginning(tag, known.move.first_value, known.residue.step == 1), known)
    return set_residue(connection, dialect, tag, NONE)


def reopen(connection: Connection, dialect: Dialect, tag: Tag, known: Shard) -> bool:
    return shard_row.write(connection, dialect, known) and set_residue(connection, dialect, tag, known.residue)


def set_residue(connection: Connection, dialect: Dialect, tag: Tag, residue: Residue) -> bool:
    unchanged = (segment.c.tag == tag.name, segment.c.max_value <= tag.max_value)
    values = {"shard_offset": residue.offset, "shard_step": residue.step}
    connection.execute(update(segment).where(*unchanged).values(values))
    now = fetch(connection, dialect, tag.name)
    return now is None or now.residue == residue


def change(connection: Connection, dialect: Dialect, name: str, changes: Mapping[str, FailoverGap]) -> bool:
    """Write only the given columns; False if the row is missing or would not be valid.

    The statement raises `max_value` and never lowers it: a claim may have passed the value that was read.
    """
    after: dict[str, ColumnElement[Any]] = {
        part.name: literal(stored(changes[part.name])) if part.name in changes else part for part in segment.c
    }
    values = [(segment.c[part], after[part]) for part in changes if part != "max_value"]
    if "max_value" in changes:
        values += lifted(stored(changes["max_value"]))
        _, after["max_value"] = values[-1]
    fits = (segment.c.tag == name, after["max_value"] <= after["id_limit"], after["step"] <= after["max_step"])
    return connection.execute(update(segment).where(*fits).ordered_values(*values)).rowcount == 1


def greater(value: ColumnElement[int], other: int) -> ColumnElement[int]:
    return case((value < other, literal(other, value.type)), else_=value)


def lifted(above: int) -> list[tuple[Column[Any], ColumnElement[Any]]]:
    """Raise a row, counting the ids that no claim gave as skipped. MySQL assigns the columns from left to right."""
    raised = greater(segment.c.max_value, above)
    return [
        (segment.c.skipped, segment.c.skipped + raised - segment.c.max_value),
        (segment.c.max_value, raised),
    ]


def repair(connection: Connection, dialect: Dialect, tag: Tag, above: int, known: Shard) -> bool:
    """Raise a row, and write the key of the last move; False if it has another key than `tag`, or a lower limit, or if
    the database has moved."""
    fence = shard_row.fence_exists(connection, dialect, known)
    return lift_with_move(connection, dialect, tag, above, known.move, fence)


def cross_all(connection: Connection, dialect: Dialect, move: Move, at: int) -> None:
    """Let every tag that has ids left skip its gap, as its next claim would. Raises `ServerReplaced`."""
    for tag in fetch_all(connection, dialect):
        if tag.move != move.key and tag.max_value < tag.limit:
            lift_with_move(connection, dialect, tag, tag.max_value + crossing(tag, at), move)


def lift_with_move(
    connection: Connection, dialect: Dialect, tag: Tag, above: int, move: Move, *fence: ColumnElement[bool]
) -> bool:
    fits = (segment.c.tag == tag.name, segment.c.move == tag.move, segment.c.id_limit >= above)
    values = (*lifted(above), (segment.c.move, literal(move.key)))
    return connection.execute(update(segment).where(*fits, *fence).ordered_values(*values)).rowcount == 1


def remove(connection: Connection, dialect: Dialect, name: str) -> bool:
    """Delete a row that is closed; False if it is open."""
    closed = (segment.c.tag == name, segment.c.shard_step == 0)
    is_gone = connection.execute(delete(segment).where(*closed)).rowcount == 1
    return is_gone or fetch(connection, dialect, name) is None


def as_tag(row: Any) -> Tag:
    residue = Residue(row.shard_offset, row.shard_step)
    settings = (row.step, row.max_step, row.id_limit, residue, GAPS.get(row.failover_gap, row.failover_gap))
    return Tag(row.tag, row.max_value, *settings, row.skipped, row.claimed_at, row.move)


def row_of(tag: Tag, known: Shard) -> dict[str, object]:
    """The row of a tag that begins in this database."""
    return {
        "tag": tag.name,
        "max_value": tag.max_value,
        "step": tag.step,
        "max_step": tag.max_step,
        "id_limit": tag.limit,
        "failover_gap": stored(tag.failover_gap),
        "skipped": tag.max_value,
        "move": known.move.key,
        "shard_offset": known.residue.offset,
        "shard_step": known.residue.step,
    }


def stored(value: FailoverGap) -> int:
    return value if isinstance(value, int) else next(code for code, gap in GAPS.items() if gap == value)
