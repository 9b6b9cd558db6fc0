"""Pages are rendered once for all who look at the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from starlette.requests import Request

from allocator.rules.token import VERBS, Token
from allocator.service.auth import Principal
from allocator.service.console import rendering
from allocator.service.console.rendering import Pages


def test_a_page_is_rendered_once_for_each_token_until_the_next_sample_and_in_its_turn(monkeypatch):
    token_cache: Any = SimpleNamespace()
    error_reporter: Any = None
    pages = Pages(token_cache, error_reporter)
    monkeypatch.setattr(rendering, "PAUSE", 0)
    monkeypatch.delattr("jinja2.Environment.compile")  # no template is compiled while somebody waits
    request = Request({"type": "http", "path": "/console/doctor", "headers": []})
    rendered = []

    def values() -> dict[str, Any]:
        rendered.append(1)
        return {"latest": SimpleNamespace(value=None, error=None)}

    def principal(number: int) -> Principal:
        return Principal(Token(number, f"token-{number}", "", VERBS, ("*",), datetime.now(UTC)))

    async def show(number: int, version: int = 1) -> bytes:
        return bytes((await pages.show(request, principals[number], "doctor", version, values)).body)

    principals = {number: principal(number) for number in (1, 2)}

    async def run() -> None:
        assert len(set(await asyncio.gather(*(show(1) for _ in range(24))))) == 1
        assert len(rendered) == 1
        assert b"token-2" in await show(2)
        await show(1, version=2)
        assert len(rendered) == 3
        pages.forget()
        await show(1)
        assert len(rendered) == 4
        asyncio.get_running_loop().call_soon(pages.forget)  # a sample, before those who waited have their answer
        await show(1, version=3)
        ended: list[int] = []
        shown = [asyncio.create_task(show(number)) for number in (1, 1, 1, 2)]
        for task, number in zip(shown, (1, 1, 1, 2), strict=True):
            task.add_done_callback(lambda _, number=number: ended.append(number))
        await asyncio.wait(shown)
        await asyncio.sleep(0)
        assert ended == [1, 2, 1, 1], "pages of one token wait for each other, and those of others do not"

    asyncio.run(run())
