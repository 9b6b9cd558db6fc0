"""Numbers without gaps: whole transactions that draw one, insert its row and commit.

Ours beside django-sequences on Django's connection, and beside a hand-written counter on SQLAlchemy's, in one scope.
And what is left of that where transactions hold their number.
"""

from __future__ import annotations

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from sqlalchemy import Engine, create_engine, make_url, text

from allocator import Numbers

from .places import RUN, Place
from .rounds import Measure, Race

COMMITS = 50
"""Commits per sample."""
WRITERS = (1, 4)
HOLDS = (0, 1, 10, 100)
"""Milliseconds for which a transaction holds its number."""
HOLD_SECONDS = 0.3
"""About how long a sample of one writer takes that holds its numbers."""
MOST = 8
CURVES = {"1 writer": (1, False), "8 writers": (MOST, False), "8 writers in 8 scopes": (MOST, True)}
"""Writers, and whether each has a scope of its own."""

ROWS, COUNTER, SEQUENCE = (f"allocator_bench_{RUN}_{name}" for name in ("row", "counter", "sequence"))
ENGINES = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite3"}

Act = Callable[[int], object]
"""One transaction, in a scope."""


class Timed:
    """Commits per second of some writers; `taken` are the microseconds of each transaction."""

    def __init__(self, pool: ThreadPoolExecutor, act: Act, writers: int, commits: int, *, scopes: bool = False) -> None:
        self.pool, self.act, self.writers, self.commits, self.scopes = pool, act, writers, commits, scopes
        self.taken: list[float] = []

    def __call__(self) -> float:
        todo, ready, clock = iter(range(self.commits)), threading.Barrier(self.writers), time.perf_counter

        def write(number: int) -> tuple[float, float, list[float]]:
            scope = number if self.scopes else 0
            taken: list[float] = []
            self.act(scope)  # opens the connection of this thread
            ready.wait()
            began = then = clock()
            for _ in todo:
                self.act(scope)
                taken.append((clock() - then) * 1e6)
                then = clock()
            return began, then, taken

        begun, ended, taken = zip(*self.pool.map(write, range(self.writers)), strict=True)
        self.taken += [one for each in taken for one in each]
        return float(self.commits / (max(ended) - min(begun)))


def ours(engine: Engine, numbers: Numbers, seconds: float = 0.0) -> Act:
    """Draw on SQLAlchemy's connection, and hold the number for so long."""
    insert = text(f"INSERT INTO {ROWS} VALUES ('ours, SQLAlchemy', :scope, :n)")

    def act(scope: int) -> None:
        with engine.begin() as connection:
            n = numbers.next(connection, f"sqlalchemy-{scope}").n
            if seconds:
                time.sleep(seconds)
            connection.execute(insert, {"scope": scope, "n": n})

    return act


def by_hand(engine: Engine) -> Act:
    """The counter that people write. SQLite has no FOR UPDATE: the UPDATE comes first there, and locks the file."""
    insert = text(f"INSERT INTO {ROWS} VALUES ('by hand', :scope, :n)")
    read = f"SELECT n FROM {COUNTER} WHERE scope = :scope"
    lock, read_again = text(f"{read} FOR UPDATE"), text(read)
    update = text(f"UPDATE {COUNTER} SET n = n + 1 WHERE scope = :scope")

    def locked(connection: Any, where: Mapping[str, int]) -> int:
        n = connection.execute(lock, where).scalar_one() + 1
        connection.execute(update, where)
        return int(n)

    def in_a_file(connection: Any, where: Mapping[str, int]) -> int:
        connection.execute(update, where)
        return int(connection.execute(read_again, where).scalar_one())

    draw = in_a_file if engine.dialect.name == "sqlite" else locked

    def act(scope: int) -> None:
        with engine.begin() as connection:
            n = draw(connection, {"scope": scope})
            connection.execute(insert, {"scope": scope, "n": n})

    return act


def of_django(stack: ExitStack, place: Place, numbers: Numbers, pool: ThreadPoolExecutor) -> Mapping[str, Act]:
    """Django-sequences and ours in `atomic`; neither where they are not installed."""
    if not has_django():
        return {}
    sequences: Any = importlib.import_module("sequences")
    database: Any = importlib.import_module("django.db")
    open_django(stack, place, pool, MOST)
    connection, atomic = database.connection, database.transaction.atomic

    def insert(*row: object) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO {ROWS} VALUES (%s, %s, %s)", row)

    def theirs(scope: int) -> None:
        with atomic():
            insert("django-sequences", scope, sequences.get_next_value(f"scope-{scope}"))

    def by_us(scope: int) -> None:
        with atomic():
            insert("ours, Django", scope, numbers.next(connection, f"django-{scope}").n)

    return {"django-sequences": theirs, "ours, Django": by_us}


def has_django() -> bool:
    return all(importlib.util.find_spec(name) for name in ("django", "sequences"))


def open_django(stack: ExitStack, place: Place, pool: ThreadPoolExecutor, threads: int) -> None:
    """Connect Django to a place, and make the table of django-sequences there, under a name of this run.

    threads: of the pool; their connections are closed at the end.
    """
    settings: Any = importlib.import_module("django.conf").settings
    if not settings.configured:
        settings.configure(INSTALLED_APPS=["sequences.apps.SequencesConfig"], DATABASES={"default": {}})
        importlib.import_module("django").setup()
    if ENGINES[place.backend] == "mysql":
        as_mysqldb()
    model: Any = importlib.import_module("sequences.models").Sequence
    model._meta.db_table = SEQUENCE
    connections: Any = importlib.import_module("django.db").connections
    connections.settings |= connections.configure_settings({"default": entry_of(place)})
    connections["default"] = connections.create_connection("default")  # of this thread, which has that of another place
    with connections["default"].schema_editor() as editor:
        editor.create_model(model)

    def close(ready: threading.Barrier) -> None:
        ready.wait()  # a thread each
        connections.close_all()

    def leave() -> None:
        list(pool.map(close, [threading.Barrier(threads)] * threads))
        with connections["default"].schema_editor() as editor:
            editor.delete_model(model)
        connections.close_all()

    stack.callback(leave)


def entry_of(place: Place) -> dict[str, object]:
    """The place as an entry of Django's DATABASES."""
    url = make_url(place.url)
    named = {"NAME": url.database, "USER": url.username, "PASSWORD": url.password, "HOST": url.host, "PORT": url.port}
    given = {name: value for name, value in named.items() if value is not None}
    return {"ENGINE": f"django.db.backends.{ENGINES[place.backend]}", **given}


def as_mysqldb() -> None:
    """Let PyMySQL be the driver of Django, as it is ours."""
    driver: Any = importlib.import_module("pymysql")
    driver.version_info = (2, 2, 8, "final", 0)  # of mysqlclient, which Django asks for
    driver.install_as_MySQLdb()


@contextmanager
def tables(place: Place, engine: Engine) -> Iterator[Numbers]:
    """The rows and the hand-written counter; they and what ours counted are gone at the end."""
    name = place.tag("number")
    with engine.begin() as connection:
        connection.execute(
            text(f"CREATE TABLE {ROWS} (way VARCHAR(40), scope INT, n BIGINT, PRIMARY KEY (way, scope, n))")
        )
        connection.execute(text(f"CREATE TABLE {COUNTER} (scope INT PRIMARY KEY, n BIGINT NOT NULL)"))
        connection.execute(text(f"INSERT INTO {COUNTER} VALUES (0, 0)"))
    try:
        yield Numbers(name)
    finally:
        with engine.begin() as connection:
            for table in (ROWS, COUNTER):
                connection.execute(text(f"DROP TABLE {table}"))
            connection.execute(text("DELETE FROM allocator_number WHERE name = :name"), {"name": name})
        engine.dispose()


@contextmanager
def opened(place: Place) -> Iterator[tuple[ExitStack, Engine, Numbers, ThreadPoolExecutor]]:
    with ExitStack() as stack:
        engine = create_engine(place.url, pool_size=MOST)
        pool = stack.enter_context(ThreadPoolExecutor(MOST))
        yield stack, engine, stack.enter_context(tables(place, engine)), pool


@contextmanager
def races(place: Place) -> Iterator[list[Race]]:
    """A race for each number of writers; a file has one."""
    with opened(place) as (stack, engine, numbers, pool):
        acts = {"by hand": by_hand(engine), "ours, SQLAlchemy": ours(engine, numbers)}
        acts |= of_django(stack, place, numbers, pool)
        found = []
        for writers in WRITERS[:1] if place.backend == "sqlite" else WRITERS:
            timed: dict[str, Measure] = {name: Timed(pool, act, writers, COMMITS) for name, act in acts.items()}
            found.append(Race(f"number, {place.name}, {counted(writers)}", "commits/s", timed))
        yield found


@contextmanager
def holding(place: Place) -> Iterator[list[Race]]:
    """The curves of the plot, a race each: commits per second, by how long a transaction holds its number."""
    with opened(place) as (_, engine, numbers, pool):
        found = []
        for name, (writers, scopes) in CURVES.items():
            timed: dict[str, Measure] = {}
            for hold in HOLDS:
                act, most = ours(engine, numbers, hold / 1000), int(HOLD_SECONDS * 1000 / hold) if hold else COMMITS
                timed[f"{hold} ms"] = Timed(pool, act, writers, max(writers, min(COMMITS, most)), scopes=scopes)
            found.append(Race(f"hold, {place.name}, {name}", "commits/s", timed))
        yield found


def counted(writers: int) -> str:
    return f"{writers} writer{'s' * (writers > 1)}"
