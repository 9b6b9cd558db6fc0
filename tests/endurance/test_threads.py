"""Five million ids on 1 to 8 threads, through the whole stack; a billion with `--ids 1e9`."""

from __future__ import annotations

import array
import sys
import threading
from collections.abc import Callable, Iterator
from time import perf_counter

import pytest
from support.processes.threads import switching_every
from tqdm import tqdm

from allocator import Allocator, Meteor, ObjectId, Snowflake

ROUND = 5_000_000
"""So many ids are held in memory and compared; then they are forgotten."""

BUILD = "without the GIL" if not getattr(sys, "_is_gil_enabled", lambda: True)() else "with the GIL"


@pytest.fixture(params=[1, 2, 4, 8])
def rounds(request: pytest.FixtureRequest, report):
    """Draw `--ids` on some threads, and report the rate."""
    threads, total = request.param, int(request.config.getoption("--ids"))

    def drawn(next_id: Callable, what: str, new: Callable = lambda: array.array("q")) -> Iterator[list]:
        spent, done = 0.0, 0
        with tqdm(total=total, unit="id", unit_scale=True, desc=f"{what}, {threads} threads") as bar:
            while done < total:
                each = -(-min(ROUND, total - done) // threads)
                mine = [new() for _ in range(threads)]
                spent += draw_all(next_id, mine, each)
                done += each * threads
                bar.update(each * threads)
                yield mine
        rate = done / spent / 1e6
        report(f"{done} ids of {what} on {threads} threads, {BUILD}: no duplicate; {rate:.2f} million a second")

    return drawn


def draw_all(next_id: Callable, append_to: list, each: int) -> float:
    """Draw `each` on each thread, switched every 10 us; the seconds that it took."""

    def draw(append: Callable) -> None:
        for _ in range(each):
            append(next_id())

    threads = [threading.Thread(target=draw, args=(mine.append,)) for mine in append_to]
    with switching_every(1e-5):
        began = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return perf_counter() - began


@pytest.mark.parametrize("handle", ["sequence.next_id", "ids.next_id"])
@pytest.mark.parametrize("size", [10, 1000])
def test_no_duplicate_no_gap_increasing_per_thread(size, handle, rounds):
    last = 0
    with Allocator("sqlite://", step=size, max_step=size) as ids:
        next_id = ids.sequence("order").next_id if handle == "sequence.next_id" else lambda: ids.next_id("order")
        for drawn in rounds(next_id, f"{handle}, segments of {size}"):
            together = sorted(number for mine in drawn for number in mine)
            assert together == list(range(last + 1, last + len(together) + 1))
            assert all(list(mine) == sorted(mine) for mine in drawn)
            last = together[-1]


@pytest.mark.parametrize("scheme", ["meteor", "snowflake", "Meteor", "Snowflake"])
def test_the_other_schemes(scheme, rounds):
    last, random_bits = 0, 3 if scheme.lower() == "meteor" else 0
    with Allocator("sqlite://") as ids:
        alone = {"Meteor": lambda: Meteor(node=1), "Snowflake": lambda: Snowflake(1, 1)}
        next_id = alone[scheme]().next_id if scheme in alone else getattr(ids, scheme)
        for drawn in rounds(next_id, scheme):
            together = sorted(number for mine in drawn for number in mine)
            assert len({number >> random_bits for number in together}) == len(together)
            assert all(list(mine) == sorted(mine) for mine in drawn)
            assert together[0] > last
            last = together[-1]


def test_objectids(rounds):
    before: set[bytes] = set()  # of the second in which the last round ended
    for drawn in rounds(lambda: ObjectId().binary, "ObjectId", list):
        together = {made for mine in drawn for made in mine}
        assert len(together) == sum(map(len, drawn))
        assert together.isdisjoint(before)
        end = max(made[:4] for made in together)
        before = {made for made in together if made[:4] == end}
