"""The server frozen for 20 s under load: nobody notices, and it is left alone."""

from __future__ import annotations

import time

import pytest
from rig.servers import server
from tqdm import tqdm

from allocator import Allocator

RATE = 5000
WARM_UP, FROZEN = 10, 20


@pytest.mark.parametrize("kind", ["postgres", "mysql", "mariadb"], indirect=True)
def test_a_frozen_server_is_not_noticed(kind, url, tag, report):
    found = server(kind)
    running = found.running
    if running.freeze is None:
        pytest.skip(f"{running.origin} is not ours to freeze")
    with Allocator(url, runway=60) as ids:
        sequence = ids.sequence(tag)
        attempts = count_claims(ids)
        pace(sequence, WARM_UP, "warm-up")
        before = len(attempts)
        running.freeze()
        try:
            drawn = pace(sequence, FROZEN, f"{kind} frozen")
        finally:
            running.thaw()
        during = len(attempts) - before
        drawn += pace(sequence, 5, "afterwards")

    report(f"{found.version}: {during} claims attempted in {FROZEN} s, 0 errors")
    assert len(set(drawn)) == len(drawn) == RATE * (FROZEN + 5)
    assert during < FROZEN


def count_claims(ids: Allocator) -> list[float]:
    """When a claim was attempted, from here on."""
    attempts: list[float] = []
    claim = ids._backend.database.claim_segment

    def counting(*args: object, **settings: object) -> range:
        attempts.append(time.monotonic())
        return claim(*args, **settings)  # type: ignore[arg-type]

    ids._backend.database.claim_segment = counting  # type: ignore[method-assign]
    return attempts


def pace(sequence, seconds: float, what: str) -> list[int]:
    """Draw at `RATE` a second, in slices of a hundredth."""
    drawn: list[int] = []
    began = time.monotonic()
    for tick in tqdm(range(int(seconds * 100)), desc=what, unit_scale=0.01, unit="s"):
        drawn += [sequence.next_id() for _ in range(RATE // 100)]
        time.sleep(max(0.0, began + (tick + 1) / 100 - time.monotonic()))
    return drawn
