"""Workers killed at random, their server killed and frozen, their network cut: no id twice, every range accounted for.

In `make test` for seconds, on servers that are shared and therefore left alive.
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path

import pytest
from sqlalchemy import make_url
from support.distinct import none_twice
from support.faults.trouble import FilePlace, Place, ServerPlace, planned, skipping, troubled
from support.faults.unreliable_network import Proxy
from support.processes.account import Audit, audited
from support.processes.crew import TAGS, Crew
from support.servers.containers import killable
from support.servers.databases import with_schema
from tqdm import tqdm

from allocator import Allocator

SETTINGS = {"step": 100, "max_step": 5000, "timeout": 3.0}
"""Small segments make many claims, and the ids of ten minutes must be drawn on a busy machine too."""
RATE, QUICK_RATE = 60_000, 30_000
KILL_EVERY, QUICK_KILL_EVERY = 2.0, 0.7
FAULT_EVERY, QUICK_FAULT_EVERY = 40, 10


@pytest.fixture
def place(kind: str, long: bool, new_database: Callable[[str], str]) -> Iterator[tuple[str, Place | None]]:
    """The URL of an empty database with the schema, and what can be done to it: nothing, where it is shared."""
    with ExitStack() as stack:
        if kind == "sqlite" or not long:
            url = new_database(kind)
            found: Place | None = FilePlace(Path(str(make_url(url).database))) if kind == "sqlite" else None
        else:
            server = skipping(lambda: killable(kind))
            stack.callback(server.stop)
            url, found = server.url, ServerPlace(server)
        with_schema(url)
        yield url, found


def max_values(url: str) -> list[int]:
    with Allocator(url, timeout=30) as ids:
        rows = {tag.name: tag.max_value for tag in ids.tags.list()}
    return [rows.get(tag, 0) for tag in TAGS]


def rule(crew: Crew, seconds: float, pause: float, seed: int, following: Future[None]) -> None:
    """Kill one of the crew every `pause` seconds, until the time is over or the plan has failed."""
    rnd, end = random.Random(seed), time.monotonic() + seconds
    with tqdm(total=round(seconds), desc="chaos", unit="s") as bar:
        while (left := end - time.monotonic()) > 0 and not (following.done() and following.exception()):
            time.sleep(min(left, pause * rnd.uniform(0.5, 1.5)))
            crew.replace_the_ended()
            crew.kill_one()
            bar.update(min(bar.total, round(seconds - max(0.0, end - time.monotonic()))) - bar.n)


def test_no_id_comes_twice(kind, place, tmp_path, seed, seconds, long, report):
    url, trouble = place
    folder = tmp_path / "accounts"
    folder.mkdir()
    with ExitStack() as stack:
        proxy = (
            None
            if kind == "sqlite"
            else stack.enter_context(Proxy(url, seed, FAULT_EVERY if long else QUICK_FAULT_EVERY))
        )
        crew = stack.enter_context(
            Crew(
                proxy.url if proxy else url,
                folder,
                seed=seed,
                rate=RATE if long else QUICK_RATE,
                settings=SETTINGS,
                count=6 if long else 3,
            )
        )
        crew.wait_until_all_draw()
        done, following = stack.enter_context(troubled(trouble, planned(seed, seconds)))
        rule(crew, seconds, KILL_EVERY if long else QUICK_KILL_EVERY, seed, following)
    audit = audited(folder, max_values(url))
    report(told(kind, audit, crew, done, proxy.faults if proxy else Counter(), seconds))

    none_twice(audit.wrong.items(), audit)
    assert audit.stopped == 0
    assert audit.ids > 0
    assert proxy is None or proxy.faults.total() > 0
    assert audit.claims > 0
    shutil.rmtree(folder)


def told(kind: str, audit: Audit, crew: Crew, done: Counter[str], faults: Counter[str], seconds: float) -> str:
    struck = ", ".join(f"{count} x {fault}" for fault, count in sorted(faults.items())) or "none"
    return (
        f"{kind}: {audit.ids:,} ids in {seconds:g} s ({audit.ids / seconds:,.0f}/s) by {crew.started} processes, "
        f"{crew.killed} killed; database killed {done['kill']} times, frozen {done['freeze']} times; "
        f"network: {struck}; {audit.failed} calls failed; {audit.claims:,} ranges of "
        f"{audit.claimed:,} ids, {audit.left:,} left in memory or burnt, {audit.unheard:,} more by the rows; "
        f"duplicates {audit.duplicates}, claimed twice {audit.claimed_twice}, outside a claim {audit.outside}, "
        f"above the row {audit.lost}"
    )
