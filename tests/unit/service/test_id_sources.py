"""The sources of the hot routes."""

from __future__ import annotations

import asyncio
import gc
import json
from types import SimpleNamespace
from typing import Any

from allocator.service.id_sources import PART, PAUSE, Source, TagSource, object_ids


def test_the_look_at_what_remains_and_the_draw_share_one_timeout():
    now, left = 0.0, []

    async def look(tag: str) -> Any:
        nonlocal now
        now += 4.0
        return SimpleNamespace(remaining=1000)

    async def draw(count: int, end: float) -> list[int]:
        left.append(end - now)
        return list(range(count))

    ids: Any = SimpleNamespace(
        buffer=lambda tag: SimpleNamespace(next=None, several=draw, count=lambda: 0),
        deadline=lambda: now + 5.0,
        tags=SimpleNamespace(get=look),
    )
    assert asyncio.run(TagSource(ids, "order").take(100)) == list(range(100))
    assert left == [1.0]


def test_a_large_answer_lets_the_event_loop_answer_others():
    async def story() -> tuple[bytes, int]:
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        answer = await Source("objectid", object_ids).answer(20 * PART)
        beside.cancel()
        return answer, turns

    answer, turns = asyncio.run(story())

    assert len(set(json.loads(answer)["ids"])) == 20 * PART
    assert turns >= 2 * 19  # they are made, and encoded, in parts


def test_a_large_answer_leaves_time_for_threads(monkeypatch):
    """Without it eight clients that ask for 10,000 ObjectIds took another's segment from 4 ms to more than a second."""
    pauses, sleep = [], asyncio.sleep

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    asyncio.run(Source("objectid", object_ids).answer(3 * PART))

    assert pauses == 4 * [PAUSE]
    assert PAUSE > 0


def test_object_ids_are_nothing_that_python_looks_through_for_garbage():
    """Ten thousand objects at a time made it search all of memory, while nobody was answered."""
    assert not any(map(gc.is_tracked, asyncio.run(object_ids(3))))
