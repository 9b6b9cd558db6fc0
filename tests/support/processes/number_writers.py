"""Processes that draw numbers without gaps and write rows for them, roll back at random, and are killed by themselves.

The check reads the rows alone, by SQL that shares nothing with the library.

python -m support.processes.number_writers URL SEED SCOPES TRANSACTIONS
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import BigInteger, Column, MetaData, String, Table, create_engine, insert, text

from allocator import NumberConflict, Numbers

rows = Table("numbered", MetaData(), Column("scope", String(64)), Column("n", BigInteger))
"""Without a key: a duplicate would be written, and found."""

ROLLED_BACK = 0.2
KILLED = 0.5
"""How many kills a life of so many transactions expects, at any of four steps of each."""


class Found(NamedTuple):
    """Of all scopes: the rows, and in how many scopes they are not 1, 2, 3 ... once each."""

    rows: int
    wrong: int


def write(url: str, seed: int, scopes: int, transactions: int) -> None:
    rnd, engine = random.Random(seed), create_engine(url)
    numbers, odds = Numbers("soak", wait=30), KILLED / (4 * transactions)

    def step() -> None:
        if rnd.random() < odds:
            os.kill(os.getpid(), signal.SIGKILL)

    while transactions:
        scope = f"scope-{rnd.randrange(scopes)}"
        with engine.connect() as connection:
            try:
                step()
                drawn = numbers.next(connection, scope)
                step()
                connection.execute(insert(rows).values(scope=scope, n=drawn.n))
                step()
                if rnd.random() < ROLLED_BACK:
                    connection.rollback()
                    continue
                connection.commit()
                transactions -= 1
                step()
            except NumberConflict:
                connection.rollback()


def start(url: str, seed: int, scopes: int, transactions: int) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", __name__, url, str(seed), str(scopes), str(transactions)]
    return subprocess.Popen(words, cwd=Path(__file__).parents[2])


def run(url: str, processes: int, scopes: int, lives: int, transactions: int) -> Iterator[bool]:
    """Run `processes` at a time until so many lives came to their end; of each that ended, whether it was killed."""
    engine = create_engine(url)
    rows.drop(engine, checkfirst=True)
    rows.create(engine)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM allocator_number"))
    engine.dispose()
    seeds = itertools.count(1)
    running = [start(url, next(seeds), scopes, transactions) for _ in range(processes)]
    try:
        while running:
            code = (one := running.pop(0)).wait()
            assert code in {0, -signal.SIGKILL}
            lives -= code == 0
            if lives >= processes or (code and len(running) < lives):
                running.append(start(url, next(seeds), scopes, transactions))
            yield bool(code)
    finally:
        for one in running:
            one.kill()
            one.wait()


def check(url: str) -> Found:
    """Of each scope the least, the greatest, how many and how many different."""
    engine = create_engine(url)
    with engine.connect() as connection:
        found = connection.execute(
            text("SELECT scope, min(n), max(n), count(*), count(DISTINCT n) FROM numbered GROUP BY scope")
        ).all()
        counters = dict(connection.execute(text("SELECT scope, n FROM allocator_number")).all())
    engine.dispose()
    wrong = sum((least, greatest, greatest) != (1, *ns) for _, least, greatest, *ns in found)
    wrong += counters != {scope: greatest for scope, _, greatest, *_ in found}
    return Found(sum(row[3] for row in found), wrong)


if __name__ == "__main__":
    write(sys.argv[1], *map(int, sys.argv[2:]))
