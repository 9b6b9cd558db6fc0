"""Claims compared with the same statement on the bare driver, and with the database's own counters.

Wall-clock microseconds per statement, over `STATEMENTS` in a row. No connection is opened meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import repeat
from typing import Any

from sqlalchemy import event, text
from sqlalchemy.exc import SQLAlchemyError

from allocator import Allocator
from allocator.database.store import Database
from allocator.schemes.tag import Tag

from .places import RUN, Place
from .rounds import Figure, Measure, Race

STATEMENTS = 60
"""Statements per sample."""
CALLS = 100_000
SIZE = 1000

OURS, RIVAL = "ids.next_id(tag) and its claims", "a block of 1000 from a sequence"
FIGURES = (
    Figure("a claim to the same statement on the bare driver", "claim", "bare driver", "≤ 1.35"),
    Figure("ids.next_id(tag) and its claims, to blocks of 1000 of a native sequence", OURS, RIVAL, "≤ 1"),
)

NEXTVAL, INSERT = "SELECT nextval('{0}')", "INSERT INTO {0} (at) VALUES (1)"
COUNTERS = {
    "postgresql": [
        ("nextval", "SEQUENCE", "", NEXTVAL),
        ("nextval, CACHE 1000", "SEQUENCE", "CACHE 1000", NEXTVAL),
        ("INSERT … RETURNING", "TABLE", "(id BIGSERIAL PRIMARY KEY, at INT)", f"{INSERT} RETURNING id"),
    ],
    "sqlite": [("INSERT, AUTOINCREMENT", "TABLE", "(id INTEGER PRIMARY KEY AUTOINCREMENT, at INT)", INSERT)],
    "mysql": [("INSERT, AUTO_INCREMENT", "TABLE", "(id BIGINT AUTO_INCREMENT PRIMARY KEY, at INT)", INSERT)],
}
"""What the databases count by themselves: a label, what is created, its definition, and how it is drawn from."""

Act = Callable[[], object]


def timed(act: Act, count: int = STATEMENTS) -> Measure:
    """Microseconds per call."""

    def measure() -> float:
        began = time.perf_counter()
        for _ in repeat(None, count):
            act()
        return (time.perf_counter() - began) / count * 1e6

    return measure


class Blocks:
    """Ids out of blocks that are drawn when the last one is used up, as people write it by hand."""

    def __init__(self, draw: Callable[[], range]) -> None:
        self.draw = draw
        self.lock = threading.Lock()
        self.block = iter(range(0))

    def next_id(self) -> int:
        with self.lock:
            for number in self.block:
                return number
            self.block = iter(self.draw())
            return next(self.block)


def native_blocks(place: Place, stack: ExitStack) -> Blocks | None:
    """The fair rival: 1000 ids for each `nextval`. None without sequences, or without the right to create one."""
    name = f"allocator_bench_{RUN}_blocks"
    words = {"postgresql": f"SELECT nextval('{name}')", "mariadb": f"SELECT NEXT VALUE FOR {name}"}.get(place.kind)
    if words is None or not made(place, stack, "SEQUENCE", name, f"INCREMENT BY {SIZE}"):
        return None
    connection, nextval = stack.enter_context(place.engine.connect()), text(words)

    def draw() -> range:
        first: int = connection.execute(nextval).scalar_one()
        return range(first, first + SIZE)

    return Blocks(draw)


def made(place: Place, stack: ExitStack, kind: str, name: str, words: str) -> bool:
    """Create something until the end of the stack. Returns whether the user may."""
    with suppress(SQLAlchemyError), place.engine.connect() as connection:
        connection.execute(text(f"CREATE {kind} {name} {words}"))
        stack.callback(dropped, place, kind, name)
        return True
    return False


def dropped(place: Place, kind: str, name: str) -> None:
    with place.engine.connect() as connection:
        connection.execute(text(f"DROP {kind} {name}"))


# -- a claim, and the same statement on the bare driver


def claims(database: Database, name: str) -> Act:
    database.open_segment(Tag(name, max_value=1), create=True)
    return lambda: database.claim_segment(name, SIZE, {})


def bare(database: Database, claim: Act, stack: ExitStack) -> Act:
    """The statement of a claim on a connection of the driver, which has our settings. Each repetition claims again."""
    sent: list[tuple[str, Any]] = []
    event.listen(database.engine, "before_cursor_execute", lambda *words: sent.append(words[2:4]), once=True)
    claim()
    lent = database.engine.raw_connection()
    stack.callback(lent.close)
    cursor: Any = lent.driver_connection.cursor()  # type: ignore[union-attr]
    lent.detach()  # the pool is small
    words, parameters = sent[0]

    def act() -> object:
        cursor.execute(words, parameters)
        return cursor.fetchall() if "RETURNING" in words else cursor.lastrowid

    if not act():
        raise RuntimeError(f"this claims nothing: {words}")
    return act


# -- what people would take instead


def counters(place: Place, stack: ExitStack) -> dict[str, Act]:
    """The database's own counters: tables and sequences made for the run, if the user may create them."""
    connection = stack.enter_context(place.engine.connect())
    found: dict[str, Act] = {}
    for number, (label, kind, words, draw) in enumerate(COUNTERS.get(place.kind, COUNTERS["mysql"])):
        name = f"allocator_bench_{RUN}_{number}"
        if made(place, stack, kind, name, words):
            found[label] = partial(connection.execute, text(draw.format(name)))
    return found


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    with ExitStack() as stack:
        database = Database(place.url, timeout=60)
        stack.callback(database.close)
        ids = stack.enter_context(Allocator(place.url, timeout=60))
        claim, tag = claims(database, place.tag("claim")), place.tag("each")
        acts = {"bare driver": bare(database, claim, stack), "claim": claim}
        acts |= counters(place, stack)
        for act in acts.values():
            act()  # connects
        every = {name: timed(act) for name, act in acts.items()}
        every[OURS] = timed(lambda: ids.next_id(tag), CALLS)
        every[OURS]()  # grows the segment
        if blocks := native_blocks(place, stack):
            every[RIVAL] = timed(blocks.next_id, CALLS)
        yield [Race("claim", "us", every, FIGURES, place.name)]
