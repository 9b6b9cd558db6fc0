"""The rows of a database and the statements on them: the rules that the worlds are about, written down once.

Each function is a statement, or a transaction that holds its lock: the rows that it writes, or None where a word of its
condition does not hold. `known` is what the process read before; `here` is the run of the server that carries it out.
`contract/test_moves_model.py` and `contract/test_worker_rows.py` tie them to the SQL.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from allocator.database.verbs.segments import Fence
from allocator.schemes import worker_number_lease
from allocator.schemes.failover import Move
from allocator.schemes.shared.residues import ALL, NONE, Residue
from allocator.schemes.slots import union
from allocator.schemes.tag import FailoverGap
from allocator.schemes.tag import Tag as StoredTag
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, NumberRow
from simulation.seeds import holds, is_out

REPLACE, CLAIM = "replace", "claim"
"""How tickets are drawn."""
SHARD, TICKETS, NODES = "shard", "tickets", "nodes"
Rows = dict[str, Any]
"""The rows by name: a tag's is its own name. None is a row that was removed."""


class Shard(NamedTuple):
    """The row of `allocator_shard`. `marked`: the move under which `taken` was written."""

    run: str
    move: object = 0
    first: int = 0
    made: int = 0
    fleet: str = ""
    residue: Residue = ALL
    taken: frozenset[int] = frozenset()
    marked: object = 0
    tickets: str = REPLACE


class Tag(NamedTuple):
    """A row of `allocator_segment`. `move`: the last one whose gap it has."""

    value: int
    move: object
    residue: Residue = ALL


EMPTY: Rows = {TICKETS: 0, NODES: 0}
UNDER_WAY = 8
"""More numbers than statements are under way that no row fences: REPLACE on a member that lags behind `make`."""


def above(value: int, residue: Residue) -> int:
    """The first number of this residue above the value."""
    return value + 1 + (residue.offset - value - 1) % residue.step


def tags(rows: Rows) -> dict[str, Tag]:
    return {name: row for name, row in rows.items() if isinstance(row, Tag)}


class Row(NamedTuple):
    """All of a row of `allocator_segment`."""

    max_value: int
    step: int = 1
    max_step: int = 1
    limit: int = 2**63 - 1
    residue: Residue = ALL
    failover_gap: FailoverGap = 0
    skipped: int = 0
    claimed_at: int = 0
    move: int = 0

    def tag(self, name: str) -> StoredTag:
        return StoredTag(name, *self)


def after_claim(row: Row, shard: Move, here: str, span: int, fence: Fence, seen: int, at: int = 0) -> Row | None:
    """UPDATE allocator_segment: the window (max_value + skip, max_value + skip + span] is claimed on the run `here`."""
    base = row.max_value + fence.skip
    if not holds(
        ("claim: own run", here == fence.run),
        ("claim: was", row.move == fence.row_move),
        ("claim: the row's move", shard.key == fence.shard_move),
        ("claim: the row's run", shard.run == fence.run),
        ("claim: residue", row.residue == fence.residue),
        ("claim: seen", base >= seen),
        ("claim: limit", base <= row.limit - span),
    ):
        return None
    return row._replace(max_value=base + span, move=fence.shard_move, skipped=row.skipped + fence.skip, claimed_at=at)


def claimed(
    rows: Rows, here: str, name: str, known: Shard, was: Any, skip: int, *, size: int = 1, seen: int = 0
) -> Rows | None:
    """That of a tag; with a size of 0 it is `tags repair`."""
    tag, shard = rows.get(name), rows[SHARD]
    if tag is None:
        return None
    row = Row(tag.value, residue=tag.residue, move=tag.move)
    fence = Fence(known.residue, was, known.move, known.run, skip)
    after = after_claim(row, Move(shard.run, shard.move), here, size * known.residue.step, fence, seen)
    return after and {name: Tag(after.max_value, after.move, after.residue)}


def new_tag(rows: Rows, here: str, name: str, known: Shard) -> Rows | None:
    """The shard's row is written under the fence, then the tag is inserted."""
    shard = rows[SHARD]
    if rows.get(name) or not holds(
        ("new tag: own run", here == known.run),
        ("new tag: the row's move", shard.move == known.move),
        ("new tag: the row's run", shard.run == known.run),
        ("new tag: first value", shard.first == known.first),
        ("new tag: residue", shard.residue == known.residue),
    ):
        return None
    inserted = {name: Tag(known.first, known.move, known.residue)}
    if is_out("new tag: written"):
        return inserted
    return {SHARD: shard._replace(made=shard.made + 1), **inserted}


def may_draw(shard: Shard, here: str, known: Shard) -> bool:
    """The fence of REPLACE and of a node's INSERT."""
    return holds(
        ("ticket: own run", here == known.run),
        ("ticket: the row's move", shard.move == known.move),
        ("ticket: residue", shard.residue == known.residue),
    )


def ticket(rows: Rows, here: str, known: Shard) -> Rows | None:
    """REPLACE INTO allocator_ticket, with the offset and step that the session was given."""
    shard = rows[SHARD]
    if known.tickets != REPLACE or not holds(("ticket: mode", shard.tickets == REPLACE)):
        return None
    return {TICKETS: above(rows[TICKETS], known.residue)} if may_draw(shard, here, known) else None


def node(rows: Rows, here: str, known: Shard) -> Rows | None:
    return {NODES: rows[NODES] + 1} if may_draw(rows[SHARD], here, known) else None


def node_number(counter: int, residue: Residue) -> int:
    return (counter - 1) * residue.step + residue.offset


def moved(
    rows: Rows,
    here: str,
    key: object,
    reach: Callable[[str], int],
    noticed: Shard | None = None,
) -> Rows | None:
    """The move, where the row still names the run that was noticed; `mark-restored` has noticed none.

    `reach` is how far the counters are raised: of nodes, of tickets, and of new tags.
    """
    shard = rows[SHARD]
    if noticed and is_out("move: as it was noticed"):
        shard = noticed
    elif noticed and (shard.run == here or shard[:3] != noticed[:3]):
        return None
    first = max(shard.first, reach(SHARD))
    raised = {counter: max(rows[counter], reach(counter)) for counter in (TICKETS, NODES)}
    return {SHARD: shard._replace(run=here, move=key, first=first), **raised}


def made(rows: Rows, slots: int, fleet: str, reach: Callable[[str], int]) -> Rows | None:
    """`shards make`, after the move: every tag is raised by its gap, and has the residue 1."""
    shard, residue = rows[SHARD], Residue(1, slots)
    if not holds(("make: refused in a fleet", not shard.fleet)):
        return None
    written: Rows = {}
    for name, tag in tags(rows).items():
        is_behind = tag.move != shard.move and not is_out("make: crosses")
        raised = tag._replace(value=max(tag.value, reach(name)), move=shard.move) if is_behind else tag
        written[name] = raised._replace(residue=residue if tag.residue != NONE else NONE)
    marked = {"fleet": fleet, "residue": residue, "taken": frozenset({1}), "marked": shard.move}
    return {**written, SHARD: shard._replace(**marked)}


def marked(rows: Rows, here: str, read: Shard, taken: frozenset[int], *, is_sure: bool = True) -> Rows | None:
    """The mark of `shards add` at a member: compare and set."""
    shard = rows[SHARD]
    if shard.fleet != read.fleet or not holds(
        ("add: own run", here == shard.run),
        ("add: taken as read", shard.taken == read.taken),
        ("add: move as read", shard.move == read.move),
    ):
        return None
    return {
        SHARD: shard._replace(
            taken=frozenset(union(shard.taken, taken)), marked=shard.move if is_sure else shard.marked
        )
    }


def joined(
    rows: Rows,
    here: str,
    key: object,
    like: Rows,
    taken: frozenset[int],
    slot: int,
    *,
    is_sure: bool = True,
) -> Rows | None:
    """The last transaction of `shards add`, in the new database: `like` are the greatest rows of the members."""
    shard, residue = like[SHARD], Residue(slot, like[SHARD].residue.step)
    empty = not rows[SHARD].fleet and not tags(rows) and not rows[TICKETS] and not rows[NODES]
    if not holds(("add: empty", empty)):
        return None
    row = shard._replace(run=here, move=key, marked=key if is_sure else None, residue=residue, taken=taken, made=0)
    found = {name: tag._replace(move=tag.move and key, residue=residue) for name, tag in tags(like).items()}
    for name, tag in tags(rows).items():
        found[name] = tag._replace(
            value=max(tag.value, found[name].value if name in found else 0), move=key, residue=residue
        )
    counters = {counter: max(rows[counter], like[counter]) for counter in (TICKETS, NODES)}
    return {SHARD: row, **found, **counters}


def greatest(members: list[Rows]) -> Rows:
    """The greatest values of all members, which a new one begins above."""
    shard = members[0][SHARD]._replace(first=max(rows[SHARD].first for rows in members))
    found: Rows = {SHARD: shard, **EMPTY}
    for rows in members:
        for counter in (TICKETS, NODES):
            found[counter] = max(found[counter], rows[counter] + (0 if is_out("add: counters by a gap") else UNDER_WAY))
        for name, tag in tags(rows).items():
            known = tag if tag.move == rows[SHARD].move else tag._replace(move=None)  # it lacks the gap
            found[name] = max(known, found.get(name, known), key=lambda one: one.value)
    if is_out("add: first value"):
        found[SHARD] = shard._replace(first=0)
    if is_out("add: above the members"):
        return {SHARD: found[SHARD], **EMPTY}
    return found


# -- worker numbers


def leased(row: NumberRow | int, claim: NumberClaim, at_ms: int) -> NumberRow:
    """The row after it was taken."""
    number, used = (row, 0) if isinstance(row, int) else (row.number, row.used_until_ms)
    until, used = at_ms + claim.length_ms, max(used, claim.wall_ms + claim.length_ms)
    return NumberRow(
        number, claim.bits, claim.length_ms, claim.holder, 0, until, used, claim.host, claim.process, claim.format
    )


def renewed(row: NumberRow, lease: NumberLease, wall_ms: int, at_ms: int) -> NumberRow | None:
    """The row after a renewal; None where the lease is lost: taken, or the wall clock is too far ahead.

    Whether it has ended is for the holder to say, by `Tenure`: a failover may have forgotten the renewals before.
    """
    if (row.holder, row.length_ms) != (lease.holder, lease.length_ms):
        return None
    if not worker_number_lease.is_near(wall_ms, row.length_ms, at_ms):
        return None
    used = max(row.used_until_ms, wall_ms + row.length_ms)
    return replace(row, renewals=row.renewals + 1, until_ms=at_ms + row.length_ms, used_until_ms=used)


def released(row: NumberRow, lease: NumberLease, used_ms: int, at_ms: int) -> NumberRow | None:
    """The row after its holder gave it back; None where it is another's."""
    used = min(used_ms, at_ms + 3 * lease.length_ms)
    return replace(row, holder="", used_until_ms=used) if row.holder == lease.holder else None
