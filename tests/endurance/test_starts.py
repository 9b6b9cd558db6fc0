"""Many starts, killed at random while they draw: no id twice, and no node number twice."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.processes.patience import until
from support.rules import rule
from tqdm import tqdm

from allocator.schemes.meteor import METEOR

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
