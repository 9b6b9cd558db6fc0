"""A hundred restarts of a durable server, half of them kills, under four processes that draw: nothing is skipped."""

import struct
import time
from pathlib import Path
from typing import NoReturn

import pytest
from support.distinct import none_twice
from support.processes.account import audited
from support.processes.crew import Crew
from support.processes.drawing import SOME_IDS, TAGS, draw
from support.processes.patience import until
from support.rules import rule
from support.servers.databases import with_schema
from support.servers.machine_images import killable
from tqdm import tqdm

from allocator import Allocator, SnowflakeSettings
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
    with killable(kind) as server:
        with_schema(server.url)
        with Allocator(server.url, timeout=30, step=100, max_step=1000) as ids:
            for number, tag in enumerate(TAGS):
                ids.tags.create(tag, limit=LIMITS[number % 2])
        nodes = [node_of(server.url)]
        words = (server.url, {"timeout": 20.0}, 5_000, 18)
        with Crew(draw, tmp_path, *words, count=4, begun=SOME_IDS) as crew:
            crew.wait_until_all_have_begun()
            for number in tqdm(range(RESTARTS), desc=kind, unit="restart"):
                (server.kill if number % 2 else server.stop)()
                server.start()
                nodes.append(node_of(server.url))
                crew.replace_the_ended()
        with Allocator(server.url, timeout=30) as ids:
            rows = {tag.name: tag for tag in ids.tags.list()}
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

PAIR = struct.Struct("=qq")
"""A meteor and a snowflake."""


def draw_both(notes: Path, number: int, url: str) -> NoReturn:
    with (
        Allocator(url, timeout=30, snowflake=SnowflakeSettings(lease=1.0)) as ids,
        notes.open("ab", buffering=0) as out,
    ):
        while True:
            for _ in range(100):
                out.write(PAIR.pack(ids.meteor(), ids.snowflake()))
            time.sleep(0.01)  # or the next ones hardly start


@rule(9)
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mysql", "mariadb"], indirect=True)
def test_two_hundred_starts(fresh, kind, tmp_path, report):
    with Crew(draw_both, tmp_path / "drawn", fresh, count=AT_A_TIME, begun=1, seed=20261121) as crew:
        for number in tqdm(range(AT_A_TIME, STARTS), desc=f"starts on {kind}"):
            time.sleep(crew.rnd.uniform(0.0, 0.2))
            if number % 3:  # of the others some die as they start
                assert until(lambda: any(map(crew.has_begun, crew.running)), 60)
            crew.kill_one(begun=bool(number % 3))
        assert crew.ended == 0, "a worker ended by itself"
    check(crew, kind, report)


def check(crew: Crew, kind: str, report) -> None:
    meteors: set[int] = set()
    snowflakes: set[int] = set()
    nodes: set[int] = set()
    ids = drew = 0
    for data in crew.notes():
        pairs = list(PAIR.iter_unpack(data[: len(data) // PAIR.size * PAIR.size]))
        own = {METEOR.unpack(meteor)["node"] for meteor, _ in pairs}
        none_twice(own & nodes, "the nodes")
        assert len(own) <= 1
        nodes |= own
        drew += bool(pairs)
        ids += 2 * len(pairs)
        meteors |= {meteor >> 3 for meteor, _ in pairs}
        snowflakes |= {snowflake for _, snowflake in pairs}
    report(f"{kind}: {STARTS} starts of which {drew} drew, {ids} ids, {len(nodes)} nodes, no id and no node twice")
    none_twice(ids - len(meteors) - len(snowflakes))
    assert drew > STARTS // 2
