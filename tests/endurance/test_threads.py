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

ROUND = 5_000_000
"""So many ids are held in memory and compared; then they are forgotten."""
BUILD = "without the GIL" if not getattr(sys, "_is_gil_enabled", lambda: True)() else "with the GIL"


@pytest.fixture(params=[1, 2, 4, 8])
def rounds(request: pytest.FixtureRequest, report):
    """Draw `--ids` on some threads that are switched every 10 us, and report the rate."""
    threads, ids = request.param, int(request.config.getoption("--ids"))

    def drawn(draw: Callable, what: str, new: Callable = lambda: array.array("q"), part: int = 1) -> Iterator[list]:
        total, spent, done = ids // part, 0.0, 0
        with tqdm(total=total, unit="id", unit_scale=True, desc=f"{what}, {threads} threads") as bar:
            while done < total:
                each = -(-min(ROUND, total - done) // threads)
                mine = [new() for _ in range(threads)]
                running = [threading.Thread(target=draw, args=(one, each)) for one in mine]
                with switching_every(1e-5):
                    began = perf_counter()
                    for thread in running:
                        thread.start()
                    for thread in running:
                        thread.join()
                    spent += perf_counter() - began
                assert {len(one) for one in mine} == {each}  # no thread ended early
                done += each * threads
                bar.update(each * threads)
                yield mine
        rate = done / spent / 1e6
        report(f"{done} ids of {what} on {threads} threads, {BUILD}: no duplicate; {rate:.2f} million a second")

    return drawn


def one_by_one(next_id: Callable) -> Callable:
    def draw(mine: array.array, each: int) -> None:
        append = mine.append
        for _ in range(each):
            append(next_id())

    return draw


def by_lists(next_ids: Callable[[int], list[int]], count: int) -> Callable:
    def draw(mine: array.array, each: int) -> None:
        for had in range(0, each, count):
            mine.extend(next_ids(min(count, each - had)))

    return draw


WAYS = {
    "sequence.next_id": lambda ids: one_by_one(ids.sequence("order").next_id),
    "ids.next_id": lambda ids: one_by_one(lambda: ids.next_id("order")),
    "for id in sequence": lambda ids: lambda mine, each: mine.extend(islice(ids.sequence("order"), each)),
    "sequence.next_ids(999)": lambda ids: by_lists(ids.sequence("order").next_ids, 999),
}
SIZES = [*((way, size) for way in WAYS for size in (1000, 100_000)), ("sequence.next_id", 10), ("ids.next_id", 10)]


@pytest.mark.parametrize(("way", "size"), SIZES)
def test_no_duplicate_no_gap_increasing_per_thread(way, size, rounds):
    last = 0
    with Allocator("sqlite://", step=size, max_step=size) as ids:
        for drawn in rounds(WAYS[way](ids), f"{way}, segments of {size}", part=10 if size == 10 else 1):
            by_thread = [list(mine) for mine in drawn]
            assert all(mine == sorted(mine) for mine in by_thread)
            together = sorted(chain(*by_thread))
            none_twice(sum(map(eq, together, islice(together, 1, None))))
            # As many different ids as fit between the first and the last: none is missing.
            assert (together[0], together[-1]) == (last + 1, last + len(together))
            last = together[-1]


SCHEMES = {
    "meteor": (lambda ids: ids.meteor, 3),
    "snowflake": (lambda ids: ids.snowflake, 0),
    "Meteor": (lambda ids: Meteor(node=1).next_id, 3),
    "Snowflake": (lambda ids: Snowflake(1, 1).next_id, 0),
}
"""With how many random bits at the end."""


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_other_schemes(scheme, rounds):
    (drawing, random_bits), last = SCHEMES[scheme], 0
    with Allocator("sqlite://") as ids:
        for drawn in rounds(one_by_one(drawing(ids)), scheme, part=10):
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
