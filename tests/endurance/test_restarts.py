"""A hundred restarts of a durable server, half of them kills, under four processes that draw: nothing is skipped."""

from __future__ import annotations

import pytest
from support.distinct import none_twice
from support.faults.trouble import ServerPlace, skipping
from support.processes.account import audited
from support.processes.crew import TAGS, Crew
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
