"""Tickets per second by either statement, compared with segments: one ticket type, one and sixteen connections.

    python -m benchmarks.tickets postgresql+psycopg://… mysql+pymysql://… [--rounds 5]

Each URL names a server on which the run may create a database, which it drops at the end. Every round runs every
candidate once, in rotated order. Prints medians, lowest and highest values, and the ratio to REPLACE on the same number
of connections.
"""

from __future__ import annotations

import argparse
import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from sqlalchemy import create_engine, make_url, text

from allocator import Allocator
from allocator.database.store import Database
from allocator.fleet.grow import Growth

SECONDS = 2.0
CONNECTIONS = (1, 16)
Draw = Callable[[Allocator], object]
CANDIDATES: dict[str, Draw] = {
    "ticket, replace": lambda ids: ids.ticket("job"),
    "ticket, count": lambda ids: ids.ticket("job"),
    "segment, next_id": lambda ids: ids.next_id("job"),
}


@contextmanager
def database(server: str, name: str) -> Iterator[str]:
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    url = make_url(server).set(database=name).render_as_string(hide_password=False)
    made = Database(url, timeout=60)
    made.upgrade_schema()
    made.close()
    yield url
    with engine.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name}"))
    engine.dispose()


def rate(allocators: list[Allocator], draw: Draw) -> float:
    """Ids per second, with one thread per allocator."""
    counts = [0] * len(allocators)
    end = time.perf_counter() + SECONDS

    def run(number: int) -> None:
        ids, done = allocators[number], 0
        while time.perf_counter() < end:
            draw(ids)
            done += 1
        counts[number] = done

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(allocators))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / SECONDS


def measure(server: str, rounds: int) -> None:
    found: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        urls = {
            name: stack.enter_context(database(server, f"bench_{os.getpid()}_{at}"))
            for at, name in enumerate(CANDIDATES)
        }
        growth = Growth([Database(urls["ticket, count"])])
        growth.begin()
        growth.grow(1, "count")
        growth.close()
        pools = {
            name: [stack.enter_context(Allocator(url, timeout=60)) for _ in range(16)] for name, url in urls.items()
        }
        for number in range(rounds):
            names = list(CANDIDATES)
            for name in names[number % 3 :] + names[: number % 3]:
                for connections in CONNECTIONS:
                    speed = rate(pools[name][:connections], CANDIDATES[name])
                    found.setdefault((name, connections), []).append(speed)
        for pool in pools.values():
            for ids in pool:
                ids.close()
    print(make_url(server).drivername)
    for connections in CONNECTIONS:
        base = statistics.median(found["ticket, replace", connections])
        for name in CANDIDATES:
            speeds = found[name, connections]
            middle = statistics.median(speeds)
            spread = f"{min(speeds):,.0f} to {max(speeds):,.0f}"
            print(f"  {connections:2} connections  {name:17} {middle:12,.0f}/s  ({spread})  {middle / base:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    for server in given.server:
        measure(server, given.rounds)


if __name__ == "__main__":
    main()
