"""Workers killed at random, their server killed and frozen, their network cut: no id twice, every range accounted for.

And a database that is frozen under load: nobody notices, it is left alone, and claims go on as soon as it is back.
In `make test` for seconds, on servers that are shared and therefore left alive.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.distinct import distinct, none_twice
from support.faults.trouble import planned, troubled
from support.faults.wire import Proxy
from support.kit import backend_of
from support.processes.account import audited
from support.processes.crew import Crew
from support.processes.drawing import CLAIMED, DRAWN, METEOR, NODE, SOME_IDS, TAGS, Account, draw
from support.rules import rule
from tqdm import tqdm

from allocator import Allocator
from allocator.schemes.failover import FLOOR

SETTINGS = {"step": 100, "max_step": 5000, "timeout": 3.0}
"""Small segments make many claims, and the ids of ten minutes must be drawn on a busy machine too."""
RATE, QUICK_RATE = 60_000, 30_000
KILL_EVERY, QUICK_KILL_EVERY = 2.0, 0.7
FAULT_EVERY, QUICK_FAULT_EVERY = 40, 10


@rule(1)
def test_no_id_comes_twice(kind, place, tmp_path, seed, seconds, long, report):
    url, trouble = place
    folder, count = tmp_path / "accounts", 6 if long else 3
    rate = (RATE if long else QUICK_RATE) / count
    with ExitStack() as stack:
        faults = Counter[str]()
        at = url
        if kind != "sqlite":
            proxy = stack.enter_context(Proxy(url, seed, FAULT_EVERY if long else QUICK_FAULT_EVERY))
            faults, at = proxy.faults, proxy.url
        crew = stack.enter_context(Crew(draw, folder, at, SETTINGS, rate, seed, count=count, begun=SOME_IDS, seed=seed))
        crew.wait_until_all_have_begun()
        done, following = stack.enter_context(troubled(trouble, planned(seed, seconds)))
        crew.kill_for(seconds, KILL_EVERY if long else QUICK_KILL_EVERY, following)
    with Allocator(url, timeout=30) as ids:
        rows = {tag.name: tag for tag in ids.tags.list()}
    audit = audited(folder, [rows[tag].max_value if tag in rows else 0 for tag in TAGS])
    struck = ", ".join(f"{count} x {fault}" for fault, count in sorted(faults.items())) or "none"
    report(
        f"{kind}: {audit.ids:,} ids in {seconds:g} s ({audit.ids / seconds:,.0f}/s) by {len(crew.ever)} processes, "
        f"{crew.killed} killed; database: {dict(done)}; network: {struck}; {audit}"
    )
    none_twice(audit.wrong.items(), audit)
    assert audit.stopped == 0
    assert sum(row.skipped for row in rows.values()) == 0, "a server that forgets nothing is no other one"
    assert max((node for kind, node in audit.seen if kind == NODE), default=0) < FLOOR
    assert audit.ids > 0
    assert audit.others > 0 or not long
    assert kind == "sqlite" or faults.total() > 0
    assert audit.claims > 0
    shutil.rmtree(folder)


# -- ids go on while the database is frozen


FROZEN_RATE, FROZEN, PROMISED = 20_000, 60, 1.0
QUICK_FROZEN_RATE, QUICK_FROZEN = 2_000, 2
"""Ids a second, seconds, and the seconds until the first claim after the database is back."""
BEFORE, AFTER = 0.05, 2.0
"""Of that time, so that low water comes while it is frozen; and the seconds of drawing when it is back."""
FREEZING = ["sqlite", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("postgres", "mysql", "mariadb"))]


@pytest.mark.parametrize("kind", FREEZING, indirect=True)
def test_a_frozen_database_is_not_noticed(kind, place, tag, long, report):
    url, trouble = place
    rate, frozen = (FROZEN_RATE, FROZEN) if long else (QUICK_FROZEN_RATE, QUICK_FROZEN)
    before = frozen * BEFORE
    size = round(rate * (before + frozen + AFTER))
    with Allocator(url, step=size, max_step=size, runway=frozen, timeout=5.0 if long else 1.5) as ids:
        sequence = ids.sequence(tag)
        attempts, claims = noted(ids)
        drawn = pace(sequence, rate, before, "before")
        trouble.freeze()
        try:
            begun = len(claims)
            drawn += pace(sequence, rate, frozen, f"{kind} frozen")
            during = len(attempts)
        finally:
            trouble.thaw()
        back = time.monotonic()
        drawn += pace(sequence, rate, AFTER, "after")
    assert len(claims) > begun, "a claim, now that it is back"
    first = claims[begun] - back
    report(
        f"{kind}: frozen for {frozen} s at {rate:,} ids/s: 0 errors, {during} claims attempted, "
        f"the first one {1000 * first:.0f} ms after its return"
    )
    assert distinct(drawn) == size
    assert 1 < during <= frozen + 2
    assert first < PROMISED or not long


def noted(ids: Any) -> tuple[list[float], list[float]]:
    """When a claim was attempted, and when one was made."""
    attempts: list[float] = []
    claims: list[float] = []
    backend = backend_of(ids)
    claim = backend.claim_segment

    def counting(*args: Any, **settings: Any) -> range:
        attempts.append(time.monotonic())
        found: range = claim(*args, **settings)
        claims.append(time.monotonic())
        return found

    backend.claim_segment = counting
    return attempts, claims


def pace(sequence: Any, rate: int, seconds: float, what: str) -> list[int]:
    """Draw at this rate, in slices of a hundredth."""
    drawn: list[int] = []
    began = time.monotonic()
    for tick in tqdm(range(round(seconds * 100)), desc=what, unit_scale=0.01, unit="s"):
        drawn += [sequence.next_id() for _ in range(rate // 100)]
        time.sleep(max(0.0, began + (tick + 1) / 100 - time.monotonic()))
    return drawn


# -- the account of the chaos, held against accounts that are wrong: each fault is found, and counted exactly


Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """The account of one process more: its claims, and its blocks of ids."""
    numbers = iter(range(100))

    def write(claims: Sequence[tuple[int, int]], *blocks: Sequence[int], tag: str = "a", kind: int = DRAWN) -> None:
        account = Account(tmp_path / f"notes-{next(numbers)}", ["a", "b"])
        for claim in claims:
            account.write(CLAIMED, tag, claim)
        for block in blocks:
            account.write(kind, tag, block)

    return write


WRONG = [
    ([(21, 31)], [[21, 22, 21]], 50, {"duplicates": 1}),
    ([(5, 15)], [range(5, 15)], 50, {"duplicates": 6, "claimed_twice": 6}),
    ([(5, 15)], [[14]], 50, {"claimed_twice": 6}),
    ([(21, 31)], [[21, 31, 32]], 50, {"outside": 2}),
    ([(21, 31)], [[11]], 50, {"outside": 1}),
    ([], [[10]], 50, {"duplicates": 1, "outside": 1}),
    ([(21, 31)], [[21]], 27, {"lost": 3}),
    ([(21, 31)], [[21]], 0, {"lost": 20}),
]


def test_control_what_is_wrong_is_found(write, tmp_path):
    for claims, blocks, max_value, wrong in WRONG:
        write([(1, 11)], range(1, 11))
        write(claims, *blocks)
        assert audited(tmp_path, [max_value, 0]).wrong == wrong
        for path in tmp_path.iterdir():
            path.unlink()
    for _ in range(2):
        write([], [7, 8], [9], kind=METEOR)
    assert audited(tmp_path, [0, 0]).wrong == {"repeated": 3}


def test_a_block_torn_by_the_kill_counts_as_far_as_it_goes(write, tmp_path):
    write([(1, 11)], [1, 2, 3, 4])
    write([(11, 21)], [11, 12])
    path = tmp_path / "notes-0"
    path.write_bytes(path.read_bytes()[:-12])
    found = audited(tmp_path, [20, 0])

    assert (found.ids, found.wrong) == (4, {})
