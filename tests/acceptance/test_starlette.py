"""The lifespan and the dependency, in a Starlette and in a FastAPI application, called as a server calls them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from allocator import Allocator, AsyncAllocator
from allocator.errors import AllocatorClosed, InvalidSetting
from allocator.integrations.starlette import ids_of, lifespan


async def ask(app: Any, path: str, state: dict[str, Any]) -> Any:
    """One GET, as ASGI."""
    sent: list[dict[str, Any]] = []
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [],
        "state": dict(state),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return json.loads(b"".join(message.get("body", b"") for message in sent))


async def visit(app: Any, *paths: str) -> list[Any]:
    """Start the application, ask, and end it."""
    async with app.router.lifespan_context(app) as state:
        return [await ask(app, path, state or {}) for path in paths]


def starlette_app(**options: Any) -> Starlette:
    async def draw(request: Any) -> JSONResponse:
        return JSONResponse([await ids_of(request).next_id("order"), getattr(request.state, "other", None)])

    return Starlette(routes=[Route("/", draw)], **options)


def fastapi_app(**options: Any) -> FastAPI:
    app = FastAPI(**options)

    async def draw(ids: AsyncAllocator = Depends(ids_of)) -> list[int]:  # noqa: B008
        return [await ids.next_id("order")]

    app.get("/")(draw)
    return app


@pytest.fixture
def url(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/ids.db"


def test_starlette(url):
    assert asyncio.run(visit(starlette_app(lifespan=lifespan(url, step=5)), "/", "/")) == [[1, None], [2, None]]
    with Allocator(url) as ids:
        assert ids.tags.get("order").step == 5


def test_fastapi(url):
    assert asyncio.run(visit(fastapi_app(lifespan=lifespan(url)), "/", "/")) == [[1], [2]]


def test_the_applications_own_lifespan_runs_inside(url):
    seen: list[str] = []

    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[dict[str, str]]:
        seen.append("begins")
        yield {"other": "state"}
        seen.append("ends")

    app = starlette_app(lifespan=lifespan(url, own))

    assert asyncio.run(visit(app, "/")) == [[1, "state"]]
    assert seen == ["begins", "ends"]


def test_an_allocator_that_was_opened_here_is_closed_and_a_shared_one_is_not(url):
    kept: list[AsyncAllocator] = []

    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[None]:
        yield

    async def main(database: Any) -> None:
        async with lifespan(database, own)(None) as state:
            kept.append(state["ids"])
            await state["ids"].next_id("order")

    with Allocator(url) as shared:
        for database in (url, shared, AsyncAllocator(shared)):
            asyncio.run(main(database))
        assert shared.next_id("order") > 0
    with pytest.raises(AllocatorClosed):
        asyncio.run(kept[0].next_id("order"))


def test_two_things_of_one_name_are_refused(url):
    @asynccontextmanager
    async def own(app: Any) -> AsyncIterator[dict[str, str]]:
        yield {"ids": "mine"}

    with pytest.raises(InvalidSetting, match="sets the state 'ids' too"):
        asyncio.run(visit(starlette_app(lifespan=lifespan(url, own))))


def test_an_application_without_an_allocator_says_what_to_do():
    with pytest.raises(InvalidSetting, match=r"pass it lifespan=lifespan\(URL\)"):
        asyncio.run(visit(starlette_app(), "/"))
