"""Claims compared with the same statement on the bare driver, and with the database's own counters.

Wall-clock microseconds per statement, over `STATEMENTS` in a row; on several connections, over all of them. No
connection is opened meanwhile.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import repeat
from typing import Any

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import SQLAlchemyError

from allocator import Allocator
from allocator.database.store import Database
from allocator.schemes.tag import Tag

from .calls import by_the_clock
from .places import RUN, Place
from .rounds import Measure, Race

STATEMENTS = 60
"""Statements per sample."""
CONNECTIONS = (4, 16)
CALLS = 100_000
SIZE = 1000
BARE = (
    "UPDATE allocator_segment SET max_value = (max_value + {0}) WHERE tag = {1} AND max_value <= id_limit - {0} "
    "AND max_value >= {2} AND shard_offset = {2} AND shard_step = {2}"
)
RETURNING = {"sqlite": " RETURNING max_value", "postgresql": " RETURNING max_value"}
REDIS = "redis://127.0.0.1:6379/0"

Act = Callable[[], object]


class Timed:
    """Times the calls of a function, in microseconds."""

    def __init__(self, act: Act) -> None:
        self.act = act
        self.taken: list[float] = []

    def __call__(self) -> float:
        before = len(self.taken)
        for _ in repeat(None, STATEMENTS):
            began = time.perf_counter()
            self.act()
            self.taken.append((time.perf_counter() - began) * 1e6)
        return sum(self.taken[before:]) / STATEMENTS


def together(acts: list[Act]) -> Measure:
    """Microseconds per call, with one thread per function, all at the same time."""

    def measure() -> float:
        each = max(8, STATEMENTS // len(acts))
        ready = threading.Barrier(len(acts) + 1)

        def run(act: Act) -> None:
            ready.wait()
            for _ in repeat(None, each):
                act()

        threads = [threading.Thread(target=run, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        ready.wait()
        began = time.perf_counter()
        for thread in threads:
            thread.join()
        return (time.perf_counter() - began) / (each * len(acts)) * 1e6

    return measure


def connected(database: Database, stack: ExitStack) -> Any:
    """A connection of the driver with our settings: autocommit, durable, with a known server run."""
    lent = database.engine.raw_connection()
    stack.callback(lent.close)
    driver = lent.driver_connection
    lent.detach()  # the pool is small
    return driver


Sent = tuple[str, Any]
"""The SQL and the parameters that go to a driver."""


def bare(database: Database, sent: Sent, stack: ExitStack) -> Act:
    """Run a statement, or several of one message, and fetch the results on the bare driver."""
    cursor = connected(database, stack).cursor()
    returns, several = "RETURNING" in sent[0] or sent[0].startswith("SELECT"), "; " in sent[0]

    def act() -> object:
        cursor.execute(*sent)
        found = cursor.fetchall() if returns else cursor.lastrowid
        while several and cursor.nextset():
            cursor.fetchall()
        return found

    if not act():
        raise RuntimeError(f"this claims nothing: {sent[0]}")
    return act


def unguarded(place: Place, tag: str) -> Sent:
    """A claim without the check of the server run, to measure the cost of that check."""
    mark = "?" if place.backend == "sqlite" else "%s"
    if place.backend in RETURNING:
        return BARE.format(SIZE, mark, 1) + RETURNING[place.backend], (tag,)
    return BARE.replace("(max_value + {0})", "LAST_INSERT_ID(max_value + {0})").format(SIZE, mark, 1), (tag,)


def claims(database: Database, name: str) -> Act:
    database.open_segment(Tag(name, max_value=1), create=True)
    return lambda: database.claim_segment(name, SIZE, {})


def as_sent(database: Database, claim: Act) -> Sent:
    """Record the statement of a claim. Each repetition claims again."""
    sent: list[Sent] = []

    def note(connection: object, cursor: object, words: str, parameters: object, *_: object) -> None:
        sent.append((words, parameters))

    event.listen(database.engine, "before_cursor_execute", note)
    claim()
    event.remove(database.engine, "before_cursor_execute", note)
    return sent[-1]


class Owns:
    """The database's own counters: tables and sequences made for the run, if the user may create them."""

    def __init__(self, place: Place, stack: ExitStack) -> None:
        self.place = place
        self.stack = stack
        self.engine = place.engine()
        stack.callback(self.engine.dispose)
        self.connection: Connection = stack.enter_context(self.engine.connect())
        self.name = f"allocator_bench_{RUN}"

    def acts(self) -> dict[str, Act]:
        found: dict[str, Act] = {}
        for name, kind, words, draw in self.ways():
            with suppress(SQLAlchemyError):
                self.connection.execute(text(words))
                self.stack.callback(self.drop, kind, words.split()[2])
                found[name] = self.drawing(draw)
        return found

    def drop(self, kind: str, name: str) -> None:
        """Drop on a new connection, since the run's own may be interrupted."""
        with self.engine.connect() as connection:
            connection.execute(text(f"DROP {kind} {name}"))

    def drawing(self, words: str) -> Act:
        statement = text(words)
        return lambda: self.connection.execute(statement)

    def ways(self) -> list[tuple[str, str, str, str]]:
        name = self.name
        if self.place.backend == "postgresql":
            return [
                ("nextval", "SEQUENCE", f"CREATE SEQUENCE {name}_a", f"SELECT nextval('{name}_a')"),
                (
                    "nextval, CACHE 1000",
                    "SEQUENCE",
                    f"CREATE SEQUENCE {name}_b CACHE 1000",
                    f"SELECT nextval('{name}_b')",
                ),
                (
                    "INSERT … RETURNING",
                    "TABLE",
                    f"CREATE TABLE {name}_c (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at INT)",
                    f"INSERT INTO {name}_c (at) VALUES (1) RETURNING id",
                ),
            ]
        if self.place.backend == "sqlite":
            made = f"CREATE TABLE {name}_c (id INTEGER PRIMARY KEY AUTOINCREMENT, at INT)"
            return [("INSERT, AUTOINCREMENT", "TABLE", made, f"INSERT INTO {name}_c (at) VALUES (1)")]
        made = f"CREATE TABLE {name}_c (id BIGINT AUTO_INCREMENT PRIMARY KEY, at INT)"
        return [("INSERT, AUTO_INCREMENT", "TABLE", made, f"INSERT INTO {name}_c (at) VALUES (1)")]


def redis_acts(stack: ExitStack) -> dict[str, Act]:
    """Redis counters, if a server runs. They are only in memory: a crash loses up to a second of them."""
    try:
        redis: Any = importlib.import_module("redis")
        client = redis.Redis.from_url(os.environ.get("ALLOCATOR_BENCH_REDIS_URL", REDIS), socket_timeout=5)
        client.ping()
    except Exception:
        return {}
    key = f"allocator_bench_{RUN}"
    stack.callback(client.close)
    stack.callback(client.delete, key)
    return {"Redis INCR": lambda: client.incr(key), "Redis INCRBY 1000": lambda: client.incrby(key, SIZE)}


def round_trips(place: Place) -> float | None:
    """Round trips of a claim, counted by a proxy; None without a proxy or a network connection."""
    try:
        wire_of: Any = importlib.import_module("support.faults.tcp_proxy").Wire
    except ImportError:
        return None
    if place.backend == "sqlite":
        return None
    with wire_of(place.url) as wire:
        database = Database(wire.url)
        claim = claims(database, place.tag("wire"))
        claim()
        wire.reset()
        for _ in range(10):
            claim()
        trips = float(wire.round_trips / 10)
        database.close()
        return trips


def warm_up(databases: Sequence[Database], acts: Sequence[Act]) -> None:
    """Fill the pools, whose connections the bare driver took: else the first claim that is timed connects."""
    for database in databases:
        with ExitStack() as lent:
            for _ in range(database.dialect.pool_size):
                lent.enter_context(database.engine.connect())
    for act in acts:
        act()


@contextmanager
def races(place: Place, quick: bool = False) -> Iterator[list[Race]]:
    with ExitStack() as stack:
        databases = [Database(place.url, timeout=60) for _ in range(2)]  # each has eight connections
        for database in databases:
            stack.callback(database.close)
        ids = stack.enter_context(Allocator(place.url, timeout=60))
        tags = [place.tag(f"claim{number}") for number in range(max(CONNECTIONS))]
        ours = [claims(databases[number % 2], tag) for number, tag in enumerate(tags)]
        theirs = [bare(databases[0], as_sent(databases[number % 2], act), stack) for number, act in enumerate(ours)]
        alone: dict[str, Measure] = {"bare driver": Timed(theirs[0]), "claim": Timed(ours[0])}
        alone["bare driver, unguarded"] = Timed(bare(databases[0], unguarded(place, tags[0]), stack))
        per_id = by_the_clock(ids, place.tag("each"), CALLS)
        ids.next_id(place.tag("each"))
        alone["ids.next_id(tag), all of it"] = lambda: per_id() / 1000
        alone |= {name: Timed(act) for name, act in Owns(place, stack).acts().items()}
        alone |= {name: Timed(act) for name, act in redis_acts(stack).items()}
        warm_up(databases, [measure.act for measure in alone.values() if isinstance(measure, Timed)])
        found = [Race(f"claim, {place.name}", "us", alone)]
        for count in () if quick else CONNECTIONS:
            pair = {"bare driver": together(theirs[:count]), "claim": together(ours[:count])}
            found.append(Race(f"claim, {place.name}, {count} connections", "us, of all together", pair, judged=False))
        if (trips := round_trips(place)) is not None:
            wire = {"one": lambda: 1.0, "round trips of a claim": lambda: trips}
            found.append(Race(f"claim, {place.name}, on the wire", "round trips", wire))
        yield found
