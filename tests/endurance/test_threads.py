"""Five million ids on 1 to 8 threads, a tenth by small segments and by clocks; a billion with `--ids 1e9`."""

import array
import sys
import threading
from collections.abc import Callable, Iterator
from itertools import chain, islice
from operator import eq
from time import perf_counter

import pytest
from support.distinct import none_twice
from support.processes.threads import switching_every
from tqdm import tqdm

from allocator import Allocator, Meteor, ObjectId, Snowflake
from allocator.sync import Sequence

ROUND = 5_000_000
"""So many ids are held in memory and compared; then they are forgotten."""

BUILD = "without the GIL" if not getattr(sys, "_is_gil_enabled", lambda: True)() else "with the GIL"


@pytest.fixture(params=[1, 2, 4, 8])
def rounds(request: pytest.FixtureRequest, report):
    """Draw `--ids` on some threads, and report the rate."""
    threads, ids = request.param, int(request.config.getoption("--ids"))

    def drawn(draw: Callable, what: str, new: Callable = lambda: array.array("q"), part: int = 1) -> Iterator[list]:
        total, spent, done = ids // part, 0.0, 0
        with tqdm(total=total, unit="id", unit_scale=True, desc=f"{what}, {threads} threads") as bar:
            while done < total:
                each = -(-min(ROUND, total - done) // threads)
                mine = [new() for _ in range(threads)]
                spent += draw_all(draw, mine, each)
                assert {len(ids) for ids in mine} == {each}  # no thread ended early
                done += each * threads
                bar.update(each * threads)
                yield mine
        rate = done / spent / 1e6
        report(f"{done} ids of {what} on {threads} threads, {BUILD}: no duplicate; {rate:.2f} million a second")

    return drawn


def draw_all(draw: Callable, append_to: list, each: int) -> float:
    """Draw `each` on each thread, switched every 10 us; the seconds that it took."""
    threads = [threading.Thread(target=draw, args=(mine, each)) for mine in append_to]
    with switching_every(1e-5):
        began = perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return perf_counter() - began


def one_by_one(next_id: Callable) -> Callable:
    def draw(mine: array.array, each: int) -> None:
        append = mine.append
        for _ in range(each):
            append(next_id())

    return draw


def by_lists(sequence: Sequence, count: int) -> Callable:
    def draw(mine: array.array, each: int) -> None:
        for had in range(0, each, count):
            mine.extend(sequence.next_ids(min(count, each - had)))

    return draw


WAYS = {
    "sequence.next_id": lambda ids: one_by_one(ids.sequence("order").next_id),
    "ids.next_id": lambda ids: one_by_one(lambda: ids.next_id("order")),
    "for id in sequence": lambda ids: lambda mine, each: mine.extend(islice(ids.sequence("order"), each)),
    "sequence.next_ids(999)": lambda ids: by_lists(ids.sequence("order"), 999),
}


@pytest.mark.parametrize(
    ("way", "size"),
    [*((way, size) for way in WAYS for size in (1000, 100_000)), ("sequence.next_id", 10), ("ids.next_id", 10)],
)
def test_no_duplicate_no_gap_increasing_per_thread(way, size, rounds):
    last = 0
    with Allocator("sqlite://", step=size, max_step=size) as ids:
        for drawn in rounds(WAYS[way](ids), f"{way}, segments of {size}", part=10 if size == 10 else 1):
            by_thread = [list(mine) for mine in drawn]
            assert all(mine == sorted(mine) for mine in by_thread)
            together = sorted(chain(*by_thread))
            again = sum(map(eq, together, islice(together, 1, None)))
            # As many different ids as fit between the first and the last: none is missing.
            none_twice(again)
            assert (together[0], together[-1]) == (last + 1, last + len(together))
            last = together[-1]


@pytest.mark.parametrize("scheme", ["meteor", "snowflake", "Meteor", "Snowflake"])
def test_the_other_schemes(scheme, rounds):
    last, random_bits = 0, 3 if scheme.lower() == "meteor" else 0
    with Allocator("sqlite://") as ids:
        alone = {"Meteor": lambda: Meteor(node=1), "Snowflake": lambda: Snowflake(1, 1)}
        next_id = alone[scheme]().next_id if scheme in alone else getattr(ids, scheme)
        for drawn in rounds(one_by_one(next_id), scheme, part=10):
            together = sorted(number for mine in drawn for number in mine)
            none_twice(len(together) - len({number >> random_bits for number in together}))
            assert all(list(mine) == sorted(mine) for mine in drawn)
            assert together[0] > last
            last = together[-1]


def test_objectids(rounds):
    before: set[bytes] = set()  # of the second in which the last round ended
    for drawn in rounds(one_by_one(lambda: ObjectId().binary), "ObjectId", list):
        together = {made for mine in drawn for made in mine}
        none_twice(sum(map(len, drawn)) - len(together))
        none_twice(together & before)
        end = max(made[:4] for made in together)
        before = {made for made in together if made[:4] == end}
