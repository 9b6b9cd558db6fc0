"""A hundred restarts of a durable server, half of them kills, under four processes that draw: nothing is skipped."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.faults.trouble import ServerPlace, skipping
from support.processes.account import audited
from support.processes.crew import TAGS, Crew
from support.processes.patience import until
from support.rules import rule
from support.servers.containers import killable
from support.servers.databases import with_schema
from tqdm import tqdm

from allocator import Allocator
from allocator.schemes.meteor import METEOR

RESTARTS = 100
LIMITS = (2**63 - 1, 2**31 - 1)
LOGGED_AHEAD = 32
"""So many numbers of its sequences PostgreSQL itself skips after a crash."""


def node_of(url: str) -> int:
    with Allocator(url, timeout=30) as ids:
        return METEOR.unpack(ids.meteor())["node"]


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"])
def test_restarts_skip_nothing(kind, tmp_path, report):
    server = skipping(lambda: killable(kind))
    try:
        with_schema(server.url)
        with Allocator(server.url, timeout=30, step=100, max_step=1000) as ids:
            for number, tag in enumerate(TAGS):
                ids.tags.create(tag, limit=LIMITS[number % 2])
        place, nodes = ServerPlace(server), [node_of(server.url)]
        with Crew(server.url, tmp_path, seed=18, rate=20_000, settings={"timeout": 20.0}, count=4) as crew:
            crew.wait_until_all_draw()
            for number in tqdm(range(RESTARTS), desc=kind, unit="restart"):
                (place.kill if number % 2 else place.shut_down)()
                place.start()
                nodes.append(node_of(server.url))
                crew.replace_the_ended()
        with Allocator(server.url, timeout=30) as ids:
            rows = {tag.name: tag for tag in ids.tags.list()}
    finally:
        server.stop()
    found = audited(tmp_path, [rows[tag].max_value for tag in TAGS])
    skipped = sum(row.skipped for row in rows.values())
    report(
        f"{kind}, {RESTARTS} restarts: {found.ids} ids, {found.duplicates} duplicates, {skipped} skipped, {found.left} "
        f"in memory at the end, {found.unheard} claimed and not heard of, node {nodes[-1]} after {len(nodes)} starts"
    )
    none_twice(found.wrong.items(), found)
    assert (skipped, found.stopped, crew.ended) == (0, 0, 0)
    assert found.ids > 0
    lost = (LOGGED_AHEAD + 1) * RESTARTS // 2 if kind == "postgres" else 0
    assert len(nodes) <= nodes[-1] <= len(nodes) + lost


# -- many starts, killed at random while they draw: no id twice, and no node number twice


AT_A_TIME, STARTS = 16, 200

STARTED = """
import sys, time
from allocator import Allocator, SnowflakeSettings
url, path = sys.argv[1:]
with Allocator(url, timeout=30, snowflake=SnowflakeSettings(lease=1.0)) as ids, open(path, "ab", buffering=0) as out:
    while True:
        for _ in range(100):
            out.write(ids.meteor().to_bytes(8, "little") + ids.snowflake().to_bytes(8, "little"))
        time.sleep(0.01)  # or the next ones hardly start
"""


Started = tuple[subprocess.Popen[bytes], Path]


def start(url: str, folder: Path, number: int) -> Started:
    path = folder / f"{number:03}"
    return subprocess.Popen([sys.executable, "-c", STARTED, url, str(path)]), path


def draws(one: Started) -> bool:
    return one[1].exists() and one[1].stat().st_size > 0


@rule(9)
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
def test_two_hundred_starts(fresh, kind, tmp_path, report):
    rnd = random.Random(20261121)
    folder = tmp_path / "drawn"
    folder.mkdir()
    running = [start(fresh, folder, number) for number in range(AT_A_TIME)]
    try:
        for number in tqdm(range(AT_A_TIME, STARTS), desc=f"starts on {kind}"):
            time.sleep(rnd.uniform(0.0, 0.2))
            if number % 3:  # of the others some die as they start
                assert until(lambda: any(map(draws, running)), 60)
            victim = rnd.choice([one for one in running if draws(one) or not number % 3])
            running.remove(victim)
            assert victim[0].poll() is None, "a worker ended by itself"
            end(victim)
            running.append(start(fresh, folder, number))
    finally:
        for one in running:
            end(one)
    check(folder, kind, report)


def end(one: Started) -> None:
    one[0].kill()
    one[0].wait()


def check(folder: Path, kind: str, report) -> None:
    meteors: set[int] = set()
    snowflakes: set[int] = set()
    nodes: set[int] = set()
    ids = drew = 0
    for path in folder.iterdir():
        data = path.read_bytes()
        numbers = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) // 16 * 16, 8)]
        own = {METEOR.unpack(number)["node"] for number in numbers[::2]}
        none_twice(own & nodes, "the nodes")
        assert len(own) <= 1
        nodes |= own
        drew += bool(numbers)
        ids += len(numbers)
        meteors |= {number >> 3 for number in numbers[::2]}
        snowflakes |= set(numbers[1::2])
    report(f"{kind}: {STARTS} starts of which {drew} drew, {ids} ids, {len(nodes)} nodes, no id and no node twice")
    none_twice(ids - len(meteors) - len(snowflakes))
    assert drew > STARTS // 2
