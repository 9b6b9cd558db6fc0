"""The last ids of a tag, drawn by several at once: exactly all of them, and then the same error for ever."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from allocator import Allocator
from allocator.errors import Exhausted

KINDS = ["postgres", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("sqlite", "mysql", "mariadb"))]
LIMIT = 2**63 - 1
LAST = 3000
ALLOCATORS, THREADS = 3, 2


def all_that_come(draw: Callable[[], list[int]]) -> list[int]:
    found: list[int] = []
    try:
        while True:
            found += draw()
    except Exhausted:
        return found


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_several_draw_exactly_the_last_ids(kind, url, tag, report):
    several = [Allocator(url, step=7, max_step=70, timeout=60) for _ in range(ALLOCATORS)]
    several[0].tags.create(tag, start_after=LIMIT - LAST)
    with ThreadPoolExecutor(ALLOCATORS * THREADS) as pool:
        draws = [lambda ids=ids: [ids.next_id(tag)] for ids in several for _ in range(THREADS)]
        found = [one for part in pool.map(all_that_come, draws) for one in part]

    assert sorted(found) == list(range(LIMIT - LAST + 1, LIMIT + 1))
    for ids in [*several, Allocator(url)]:
        for _ in range(2):
            with pytest.raises(Exhausted, match=f"has issued its last id, {LIMIT}"):
                ids.next_id(tag)
        with pytest.raises(Exhausted):
            ids.reserve(tag, 1)
        assert ids.tags.get(tag).max_value == LIMIT
        ids.close()
    report(f"{kind}: {ALLOCATORS} allocators on {THREADS} threads each drew all of the last {LAST} ids up to {LIMIT:,}")
