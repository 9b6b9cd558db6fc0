"""Five million ids on eight threads, through the whole stack."""

from __future__ import annotations

import array
import threading

import pytest
from support.processes.threads import switching_every
from tqdm import tqdm

from allocator import Allocator, Meteor, ObjectId, Snowflake

THREADS, IDS = 8, 5_000_000


def draw_all(next_id, append_to: list, what: str) -> None:
    """Draw `IDS` on `THREADS`, switched every 10 us."""

    def draw(mine) -> None:
        for _ in range(IDS // THREADS):
            mine.append(next_id())

    threads = [threading.Thread(target=draw, args=(mine,)) for mine in append_to]
    with switching_every(1e-5), tqdm(total=IDS, unit="id", unit_scale=True, desc=what) as bar:
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(0.5)
                bar.update(sum(map(len, append_to)) - bar.n)


@pytest.mark.parametrize("size", [10, 1000])
def test_no_duplicate_no_gap_increasing_per_thread(size, report):
    drawn = [array.array("q") for _ in range(THREADS)]
    with Allocator("sqlite://", step=size, max_step=size) as ids:
        draw_all(ids.sequence("order").next_id, drawn, f"segments of {size}")
    together = sorted(number for mine in drawn for number in mine)

    assert together == list(range(1, IDS + 1))
    assert all(list(mine) == sorted(mine) for mine in drawn)
    report(f"{IDS} ids on {THREADS} threads, segments of {size}: no duplicate, no gap")


@pytest.mark.parametrize("scheme", ["meteor", "snowflake", "Meteor", "Snowflake"])
def test_the_other_schemes(scheme, report):
    drawn = [array.array("q") for _ in range(THREADS)]
    with Allocator("sqlite://") as ids:
        alone = {"Meteor": Meteor(node=1), "Snowflake": Snowflake(1, 1)}
        next_id = alone[scheme].next_id if scheme in alone else getattr(ids, scheme)
        draw_all(next_id, drawn, scheme)
    random_bits = 3 if scheme.lower() == "meteor" else 0
    unique = {number >> random_bits for mine in drawn for number in mine}

    assert len(unique) == IDS
    assert all(list(mine) == sorted(mine) for mine in drawn)
    report(f"{IDS} ids of {scheme} on {THREADS} threads: no duplicate, increasing per thread")


def test_objectids(report):
    drawn: list[list[bytes]] = [[] for _ in range(THREADS)]
    draw_all(lambda: ObjectId().binary, drawn, "ObjectId")

    assert len({made for mine in drawn for made in mine}) == IDS
    report(f"{IDS} ObjectIds on {THREADS} threads: no duplicate")
