"""Five million ids on eight threads, through the whole stack."""

from __future__ import annotations

import array
import sys
import threading

import pytest
from tqdm import tqdm

from allocator import Allocator

THREADS, IDS = 8, 5_000_000


@pytest.mark.parametrize("size", [10, 1000])
def test_no_duplicate_no_gap_increasing_per_thread(size, report):
    drawn = [array.array("q") for _ in range(THREADS)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with Allocator("sqlite://", step=size, max_step=size) as ids:
            sequence = ids.sequence("order")

            def draw(mine: array.array) -> None:
                for _ in range(IDS // THREADS):
                    mine.append(sequence.next_id())

            threads = [threading.Thread(target=draw, args=(mine,)) for mine in drawn]
            for thread in threads:
                thread.start()
            with tqdm(total=IDS, unit="id", unit_scale=True, desc=f"segments of {size}") as bar:
                while any(thread.is_alive() for thread in threads):
                    threads[0].join(0.5) if threads[0].is_alive() else threads[-1].join(0.5)
                    bar.update(sum(map(len, drawn)) - bar.n)
    finally:
        sys.setswitchinterval(before)
    together = sorted(number for mine in drawn for number in mine)

    assert together == list(range(1, IDS + 1))
    assert all(list(mine) == sorted(mine) for mine in drawn)
    report(f"{IDS} ids on {THREADS} threads, segments of {size}: no duplicate, no gap")
