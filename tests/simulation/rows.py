"""The rows of a database, and the statements on them: one row a database, one move a failover.

Each function is a statement, or a transaction that holds its lock: the rows that it writes, or None where a word of its
condition does not hold. `known` is what the process read before; `here` is the run of the server that carries it out.
`out` are words that are left out, to show what they are for.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from allocator.schemes.shared.residues import ALL, NONE, Residue
from allocator.schemes.slots import union

REPLACE, CLAIM = "replace", "claim"
"""How tickets are drawn."""
SHARD, TICKETS, NODES = "the shard's row", "the counter of tickets", "the counter of nodes"
Rows = dict[str, Any]
"""The rows by name: a tag's is its own name. None is a row that was removed."""
Words = AbstractSet[str]
ALL_WORDS: Words = frozenset()


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


def holds(out: Words, *words: tuple[str, bool]) -> bool:
    return all(found or word in out for word, found in words)


def above(value: int, residue: Residue) -> int:
    """The first number of this residue above the value."""
    return value + 1 + (residue.offset - value - 1) % residue.step


def tags(rows: Rows) -> dict[str, Tag]:
    return {name: row for name, row in rows.items() if isinstance(row, Tag)}


def claimed(
    rows: Rows, here: str, name: str, known: Shard, was: object, skip: int, *, size: int = 1, seen: int = 0,
    limit: int = 2**63 - 1, out: Words = ALL_WORDS,
) -> Rows | None:  # fmt: skip
    """UPDATE allocator_segment; with a size of 0 it is `tags repair`."""
    tag, shard, span = rows.get(name), rows[SHARD], size * known.residue.step
    if tag is None or not holds(
        out,
        ("claim: own run", here == known.run),
        ("claim: was", tag.move == was),
        ("claim: the row's move", shard.move == known.move),
        ("claim: the row's run", shard.run == known.run),
        ("claim: residue", tag.residue == known.residue),
        ("claim: seen", tag.value + skip >= seen),
        ("claim: limit", tag.value + skip <= limit - span),
    ):
        return None
    return {name: tag._replace(value=tag.value + skip + span, move=known.move)}


def new_tag(rows: Rows, here: str, name: str, known: Shard, out: Words = ALL_WORDS) -> Rows | None:
    """The shard's row is written under the fence, then the tag is inserted."""
    shard = rows[SHARD]
    if rows.get(name) or not holds(
        out,
        ("new tag: own run", here == known.run),
        ("new tag: the row's move", shard.move == known.move),
        ("new tag: the row's run", shard.run == known.run),
        ("new tag: first value", shard.first == known.first),
        ("new tag: residue", shard.residue == known.residue),
    ):
        return None
    inserted = {name: Tag(known.first, known.move, known.residue)}
    if "new tag: written" in out:
        return inserted
    return {SHARD: shard._replace(made=shard.made + 1), **inserted}


def may_draw(shard: Shard, here: str, known: Shard, out: Words) -> bool:
    """The fence of REPLACE and of a node's INSERT."""
    return holds(
        out,
        ("ticket: own run", here == known.run),
        ("ticket: the row's move", shard.move == known.move),
        ("ticket: residue", shard.residue == known.residue),
    )


def ticket(rows: Rows, here: str, known: Shard, out: Words = ALL_WORDS) -> Rows | None:
    """REPLACE INTO allocator_ticket, with the offset and step that the session was given."""
    shard = rows[SHARD]
    if known.tickets != REPLACE or not holds(out, ("ticket: mode", shard.tickets == REPLACE)):
        return None
    return {TICKETS: above(rows[TICKETS], known.residue)} if may_draw(shard, here, known, out) else None


def node(rows: Rows, here: str, known: Shard, out: Words = ALL_WORDS) -> Rows | None:
    return {NODES: rows[NODES] + 1} if may_draw(rows[SHARD], here, known, out) else None


def node_number(counter: int, residue: Residue) -> int:
    return (counter - 1) * residue.step + residue.offset


def moved(
    rows: Rows,
    here: str,
    key: object,
    reach: Callable[[str], int],
    noticed: Shard | None = None,
    out: Words = ALL_WORDS,
) -> Rows | None:
    """The move, where the row still names the run that was noticed; `mark-restored` has noticed none.

    `reach` is how far the counters are raised: of nodes, of tickets, and of new tags.
    """
    shard = rows[SHARD]
    if noticed and "move: as it was noticed" in out:
        shard = noticed
    elif noticed and (shard.run == here or shard[:3] != noticed[:3]):
        return None
    first = max(shard.first, reach(SHARD))
    raised = {counter: max(rows[counter], reach(counter)) for counter in (TICKETS, NODES)}
    return {SHARD: shard._replace(run=here, move=key, first=first), **raised}


def made(rows: Rows, slots: int, fleet: str, reach: Callable[[str], int], out: Words = ALL_WORDS) -> Rows | None:
    """`shards make`, after the move: every tag is raised by its gap, and has the residue 1."""
    shard, residue = rows[SHARD], Residue(1, slots)
    if not holds(out, ("make: refused in a fleet", not shard.fleet)):
        return None
    written: Rows = {}
    for name, tag in tags(rows).items():
        is_behind = tag.move != shard.move and "make: crosses" not in out
        raised = tag._replace(value=max(tag.value, reach(name)), move=shard.move) if is_behind else tag
        written[name] = raised._replace(residue=residue if tag.residue != NONE else NONE)
    marked = {"fleet": fleet, "residue": residue, "taken": frozenset({1}), "marked": shard.move}
    return {**written, SHARD: shard._replace(**marked)}


def marked(
    rows: Rows, here: str, read: Shard, taken: frozenset[int], out: Words = ALL_WORDS, *, is_sure: bool = True
) -> Rows | None:
    """The mark of `shards add` at a member: compare and set."""
    shard = rows[SHARD]
    if shard.fleet != read.fleet or not holds(
        out,
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
    out: Words = ALL_WORDS,
    *,
    is_sure: bool = True,
) -> Rows | None:
    """The last transaction of `shards add`, in the new database: `like` are the greatest rows of the members."""
    shard, residue = like[SHARD], Residue(slot, like[SHARD].residue.step)
    empty = not rows[SHARD].fleet and not tags(rows) and not rows[TICKETS] and not rows[NODES]
    if not holds(out, ("add: empty", empty)):
        return None
    row = shard._replace(run=here, move=key, marked=key if is_sure else None, residue=residue, taken=taken, made=0)
    found = {name: tag._replace(move=tag.move and key, residue=residue) for name, tag in tags(like).items()}
    for name, tag in tags(rows).items():
        found[name] = tag._replace(
            value=max(tag.value, found[name].value if name in found else 0), move=key, residue=residue
        )
    counters = {counter: max(rows[counter], like[counter]) for counter in (TICKETS, NODES)}
    return {SHARD: row, **found, **counters}


def greatest(members: list[Rows], out: Words = ALL_WORDS) -> Rows:
    """The greatest values of all members, which a new one begins above."""
    shard = members[0][SHARD]._replace(first=max(rows[SHARD].first for rows in members))
    found: Rows = {SHARD: shard, **EMPTY}
    for rows in members:
        for counter in (TICKETS, NODES):
            found[counter] = max(found[counter], rows[counter] + (0 if "add: counters by a gap" in out else UNDER_WAY))
        for name, tag in tags(rows).items():
            known = tag if tag.move == rows[SHARD].move else tag._replace(move=None)  # it lacks the gap
            found[name] = max(known, found.get(name, known), key=lambda one: one.value)
    if "add: first value" in out:
        found[SHARD] = shard._replace(first=0)
    if "add: above the members" in out:
        return {SHARD: found[SHARD], **EMPTY}
    return found
