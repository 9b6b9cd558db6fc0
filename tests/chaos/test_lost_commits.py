"""A server whose commits do not last is killed: with a failover gap of 0 ids come twice, with the usual gap none does.

`innodb_flush_log_at_trx_commit = 0` writes the log once a second; a kill forgets what was committed since. This is the
control for the chaos, which finds duplicates where there are any, and for the failover guard, which prevents them.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.faults.trouble import ServerPlace, skipping
from support.processes.account import Audit, audited
from support.processes.crew import TAGS, Crew
from support.servers.administrator import execute
from support.servers.containers import Killable, killable
from support.servers.databases import with_schema
from tqdm import tqdm

from allocator import Allocator

ROUNDS = 10
RATE = 30_000
KILL_EVERY = 0.5
FORGET = "SET GLOBAL innodb_flush_log_at_trx_commit = 0"

Lossy = tuple[Killable, ServerPlace]


def forgetful(url: str) -> None:
    execute(url, FORGET)


@pytest.fixture
def lossy(kind: str) -> Iterator[Lossy]:
    server = skipping(lambda: killable(kind))
    with_schema(server.url)
    forgetful(server.url)
    yield server, ServerPlace(server, forgetful)
    server.stop()


def killed_again_and_again(lossy: Lossy, folder: Path, seed: int, gap: int | None) -> Audit:
    server, place = lossy
    folder.mkdir()
    with Allocator(server.url, timeout=30, step=100, max_step=1000, failover_gap=gap) as ids:
        for tag in TAGS:
            ids.tags.create(tag)
    rnd = random.Random(seed)
    settings = {"timeout": 3.0}
    with Crew(server.url, folder, seed=seed, rate=RATE, settings=settings, count=3) as crew:
        for _ in tqdm(range(ROUNDS), desc=f"failover gap {gap}", unit="kill"):
            crew.wait_until_all_draw()
            crew.kill_one()
            time.sleep(rnd.uniform(1.0, 3.0))
            place.kill()
            place.start()
            crew.replace_the_ended()
    with Allocator(server.url, timeout=30) as ids:
        rows = {tag.name: tag.max_value for tag in ids.tags.list()}
    return audited(folder, [rows[tag] for tag in TAGS])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_control_without_a_gap_ids_come_twice(kind, lossy, tmp_path, seed, report: Callable[[str], None]):
    found = killed_again_and_again(lossy, tmp_path / "accounts", seed, gap=0)
    report(told(kind, "0", found))

    assert found.claimed_twice > 0
    assert found.duplicates > 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mysql", "mariadb"], indirect=True)
def test_with_the_usual_gap_no_id_comes_twice(kind, lossy, tmp_path, seed, report: Callable[[str], None]):
    found = killed_again_and_again(lossy, tmp_path / "accounts", seed, gap=None)
    report(told(kind, "as usual", found))

    # What the last kill made it forget is missing in the rows that nobody has claimed from since.
    none_twice(found.wrong.keys() - {"lost"}, found)
    assert found.stopped == 0
    assert found.ids > 0


def told(kind: str, gap: str, found: Audit) -> str:
    return (
        f"{kind}, {FORGET}, killed {ROUNDS} times, failover gap {gap}: {found.ids:,} ids, {found.duplicates:,} twice; "
        f"{found.claims:,} claims, {found.claimed_twice:,} ids claimed twice; {found.stopped} times stopped by the "
        f"watermark; {found.lost:,} ids above the row"
    )
