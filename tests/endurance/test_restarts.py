"""A hundred restarts of a durable server, half of them kills, under four processes that draw: nothing is skipped."""

import pytest
from support.distinct import none_twice
from support.processes.account import audited
from support.processes.crew import Crew
from support.processes.drawing import SOME_IDS, TAGS, draw
from support.servers.databases import with_schema
from support.servers.machine_images import killable
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
    assert len(nodes) <= nodes[-1] <= len(nodes) + 1 + lost  # of one of the four too
