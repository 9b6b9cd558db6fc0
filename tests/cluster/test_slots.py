"""A database becomes a fleet's first slot at one member of a cluster, while tags begin at another one: a lock on the
shard's row would keep nobody there out, so that both write it."""

import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

from sqlalchemy import Connection, select
from support.clusters.cluster import Cluster
from support.distinct import distinct
from support.processes.patience import until
from support.servers.fleets import add, named
from tqdm import tqdm

from allocator import Allocator
from allocator.database.dialect import Dialect
from allocator.database.store import Database
from allocator.database.tables import shard
from allocator.database.verbs import shard_row
from allocator.fleet import commands
from allocator.schemes.slots import Shard

RACES, SLOTS, SECONDS = 60, 4, 30.0
PAUSE = 0.1
"""Seconds between two new tags, at most. Without one certification refuses the command again and again."""
AGAIN = (
    "DELETE FROM ids.allocator_segment",
    "UPDATE ids.allocator_shard SET fleet = '', slot = 1, slots = 1, taken = ''",
)
Drawn = dict[str, list[int]]


def test_a_fleet_is_made_beside_new_tags_on_another_member(galera, tmp_path, report):
    rnd, counts = random.Random(20261129), Counter()
    for number in tqdm(range(RACES), desc="races", unit="race"):
        drawn = race(galera, f"race-{number}", rnd)
        counts["kept"] += kept(galera, drawn)
        draw_at_both_slots(galera, tmp_path / f"{number}.db", drawn)
        counts["tags"] += len(drawn)
        counts["ids"] += sum(map(distinct, drawn.values()))
    report(
        f"slots: {RACES} races of `shards make` beside new tags on another member: {counts['tags']} tags, "
        f"{counts['kept']} of which kept the residue of before, {counts['ids']} ids, none twice"
    )
    assert counts["kept"] == 0
    assert counts["tags"] > 3 * RACES


def test_control_a_lock_keeps_no_tag_of_another_member_out(galera, report, monkeypatch):
    def locked(connection: Connection, dialect: Dialect, known: Shard) -> bool:
        row = select(shard.c.id).where(shard_row.fence(connection, dialect, known)).with_for_update(read=True)
        return connection.scalar(row) is not None

    monkeypatch.setattr(shard_row, "write", locked)
    for number in range(RACES):
        if found := kept(galera, race(galera, f"locked-{number}", random.Random(number), pause=0.0)):
            break
    report(f"slots: where new tags only lock the shard's row, {found} kept the residue of before in race {number + 1}")
    assert found


def kept(cluster: Cluster, drawn: Drawn) -> int:
    """How many tags have the residue of before, once the first member has all of them."""

    def steps() -> list[int]:
        return [step for (step,) in cluster.ask(0, "SELECT shard_step FROM ids.allocator_segment")]

    cluster.until(lambda: len(steps()) == len(drawn), "the first member has all tags")
    return sum(step != SLOTS for step in steps())


def race(cluster: Cluster, name: str, rnd: random.Random, pause: float = PAUSE) -> Drawn:
    """The ids of each tag that began."""
    cluster.ask(0, *AGAIN)
    drawn: Drawn = {}
    is_made = Event()
    with (
        closing(Database(cluster.url(0), SECONDS)) as here,
        closing(Database(cluster.url(1), SECONDS)) as there,
        Allocator(cluster.url(1), timeout=SECONDS) as ids,
        ThreadPoolExecutor(1) as pool,
    ):
        cluster.until(lambda: not there.read_row().fleet, "the other member knows of no fleet")

        def begin_tags() -> None:
            later = 0
            while later < 3:
                tag = f"{name}-{len(drawn)}"
                drawn[tag] = [*ids.reserve(tag, 2)]
                time.sleep(rnd.uniform(0, pause))
                later += is_made.is_set()

        work = pool.submit(begin_tags)
        sooner = rnd.randrange(1, 12)
        until(lambda: len(drawn) >= sooner or work.done(), SECONDS, every=0.001)
        try:
            commands.make(here, SLOTS)
        finally:
            is_made.set()
            work.result()
    return drawn


def draw_at_both_slots(cluster: Cluster, file: Path, drawn: Drawn) -> None:
    """At both members, and at a new slot."""
    with closing(Database(cluster.url(0))) as here:
        first = named(cluster.url(0), here.read_row().word)
    new = f"sqlite:///{file}"
    with closing(Database(new)) as other:
        other.upgrade_schema()
    for url in (first, cluster.url(1), add([first], new, 2)):
        with Allocator(url, timeout=SECONDS) as ids:
            for tag, found in drawn.items():
                found.extend(ids.reserve(tag, 3))
