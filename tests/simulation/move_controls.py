"""A word left out of each statement, one at a time: the worlds of `moves` must repeat a number.

What shows in too few worlds has its scene. No world needs these, which are a second line: a claim's `move = :row_move`
and watermark, the run in its EXISTS, and what a new tag asks for beside the residue.
"""

from __future__ import annotations

from typing import NamedTuple

from simulation.moves import FIRST, SECOND, Act
from simulation.rows import NODES, TICKETS, Words


class Control(NamedTuple):
    """several: it takes several databases. scene: acts that show it, of clusters where `clusters`."""

    out: Words
    several: bool = False
    scene: tuple[Act, ...] = ()
    clusters: bool = False


def done(name: str, *args: object, j: int = 0, times: int = 9) -> tuple[Act, ...]:
    return ("begin", j, name, *args), ("go", j, FIRST, times)


def drawn(*what: str, i: int = 0) -> tuple[Act, ...]:
    return tuple(("draw", i, 0, one) for one in what)


def alone(*out: str) -> Control:
    return Control(frozenset(out))


def several(*out: str) -> Control:
    return Control(frozenset(out), several=True)


def scene(out: str, *parts: tuple[Act, ...], clusters: bool = False) -> Control:
    return Control(frozenset({out}), True, tuple(act for part in parts for act in part), clusters)


MAKE = done("make", "A")
TWO = MAKE + done("add", "B", 2, "", False)
FORGETS = (("fail_over", "A", 2, 1, False),)
STALE = (("look", 0, 0, FIRST),)

CONTROLS: dict[str, Control] = {
    # One row a database, one move a failover.
    "a tag's row names a server": alone("a key for each move"),
    "a claim without EXISTS": alone("claim: the row's move", "claim: the row's run"),
    "a claim on another server": alone("claim: own run"),
    "a gap of what was kept": alone("gaps: read under the move"),
    "a ticket on another server": alone("ticket: own run"),
    "a key that `tags set` writes": alone("tags set: leaves the key"),
    "a new tag that does not write the row, beside a lagging member": scene(
        "new tag: written",
        (("look", 0, 0, SECOND), *MAKE, ("new", 0, 0, "p", SECOND)),
        done("add", "B", 2, "", False),
        (*(("claim", 0, 0, "p", FIRST),) * 2, ("deploy", 1, "B", 0), *drawn("p", i=1)),
        clusters=True,
    ),
    "a new tag of another residue": scene(
        "new tag: residue",
        (*STALE, *MAKE, ("new", 0, 0, "p", FIRST)),
        done("add", "B", 2, "", False),
        (*(("claim", 0, 0, "p", FIRST),) * 2, ("deploy", 1, "B", 0), *drawn("p", i=1)),
    ),
    "a ticket or node after a move": scene(
        "ticket: the row's move",
        (("fail_over", "A", 3, 0, False), *drawn(NODES), ("fail_over", "A", 2, 0, False), *drawn(NODES, i=1)),
        (("copy_anew", "A", 3), *drawn(NODES, i=1), ("fail_over", "A", 3, 1, False), ("count", 0, 0, NODES, FIRST)),
    ),
    "a ticket by REPLACE where others claim it": scene(
        "ticket: mode", STALE, done("claim_tickets", "A"), (("count", 0, 0, TICKETS, FIRST),)
    ),
    "a move that writes what was read without the lock": scene(
        "move: as it was noticed",
        (("fail_over", "A", 2, 0, False), *STALE, *MAKE, *drawn(*(NODES,) * 3, i=1), ("move", 0, 0, FIRST)),
        drawn(NODES),
    ),
    # Slots.
    "a database that is not what its URL says": several("the URL's word"),
    "a new slot whose counters and tags begin at nothing": several("add: above the members"),
    "a new slot that is in use": several("add: empty"),
    "a claim of a row that is closed": scene(
        "claim: residue",
        drawn("p"),
        (*done("delete", "p", "", times=1), ("claim", 0, 0, "p", FIRST), ("go", 0, FIRST, 9)),
        drawn("p", "p", i=1),
    ),
    "a node of another residue": scene(
        "ticket: residue", drawn(NODES), MAKE, drawn(NODES, i=1), (("count", 0, 0, NODES, FIRST),) * 2
    ),
    "`make` without the gap of a failover": scene(
        "make: crosses", drawn("p", "p"), FORGETS, MAKE, done("add", "B", 2, "", False)
    ),
    "`make` twice": scene("make: refused in a fleet", TWO, MAKE, done("add", "C", 2, "A", False)),
    "two additions of one slot": scene(
        "add: taken as read",
        MAKE,
        done("add", "C", 2, "", False, j=1, times=1),
        done("add", "B", 2, "", False),
        (("go", 1, FIRST, 9),),
    ),
    "an addition beside a restore": scene(
        "add: move as read",
        MAKE,
        done("add", "C", 2, "", False, j=1, times=1),
        done("add", "B", 2, "", False),
        (("restore", "A", 1), ("go", 1, FIRST, 9)),
    ),
    "an addition beside a failover that nobody has noticed": scene(
        "add: own run",
        MAKE,
        done("add", "C", 2, "", False, j=1, times=1),
        done("add", "B", 2, "", False),
        (("fail_over", "A", 2, 1, False), ("go", 1, FIRST, 9)),
    ),
    "an addition after a failover that forgot another": scene(
        "add: taken under the present move", TWO, FORGETS, drawn(NODES), done("add", "C", 2, "A", False)
    ),
    "a word about one slot that makes a row sure of the others": scene(
        "add: unused leaves the doubt",
        TWO,
        (("restore", "A", 5),),
        done("add", "C", 3, "A", True),
        done("add", "D", 2, "AC", False),
        (("deploy", 0, "B", 0), ("deploy", 1, "D", 0), *drawn("p", "p"), *drawn("p", "p", i=1)),
    ),
    "an addition that asks some slots": scene(
        "add: every slot answers",
        MAKE,
        done("add", "B", 3, "", False),
        done("add", "C", 2, "A", False),
        (("lose", "A"),),
        done("add", "D", 2, "B", False),
    ),
    "an addition that reads before it marks": scene(
        "add: marks, then reads",
        MAKE,
        done("add", "B", 2, "", False, times=2),
        done("start_after", "p", "", 6, j=1),
        (("go", 0, FIRST, 9),),
    ),
    "a row before its values": scene(
        "add: one transaction",
        (*drawn("p", "p", "p"), ("deploy", 1, "B", 1), *MAKE),
        done("add", "B", 2, "", False, times=4),
        drawn("p", i=1),
    ),
    "a new slot without the first value": scene(
        "add: first value",
        (*drawn("p", "p", "p"), ("fail_over", "A", 2, 9, False), *drawn(NODES), *TWO),
    ),
    "a new slot beside a ticket that a lagging member draws": scene(
        "add: counters by a gap",
        (*drawn(TICKETS), ("apply", "A"), *TWO, ("count", 0, 0, TICKETS, SECOND)),
        clusters=True,
    ),
    "`tags set --start-after` at some slots": scene("tags set: every slot", TWO, done("start_after", "p", "A", 6)),
    "`tags set --start-after` at a lagging member": scene(
        "tags set: written",
        (*drawn("p"), *MAKE, ("apply", "A"), *done("add", "B", 2, "", False, times=3)),
        (("begin", 1, "start_after", "p", "", 6), ("go", 1, SECOND, 9), ("go", 0, FIRST, 9)),
        clusters=True,
    ),
    "`tags delete` that removes at once": scene(
        "tags delete: closes first",
        (*drawn("p"), *TWO, *drawn("p"), *done("delete", "p", "AB", times=1), *drawn("p", i=1)),
    ),
    "`tags delete` of a row that is open again": scene(
        "tags delete: what is closed",
        (
            *drawn("p"),
            *TWO,
            *done("delete", "p", "AB", times=2),
            *FORGETS,
            *drawn("p"),
            ("go", 0, FIRST, 9),
            *drawn("p", "p", i=1),
        ),
    ),
}
