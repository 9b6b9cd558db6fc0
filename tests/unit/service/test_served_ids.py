"""The sources of the hot routes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from allocator.service.served_ids import TagSource


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
