"""Starlette and FastAPI: one allocator per application, open before the first request.

    app = Starlette(routes=…, lifespan=lifespan("postgresql+psycopg://…"))
    app = FastAPI(lifespan=lifespan("postgresql+psycopg://…"))

    async def make(ids: Annotated[AsyncAllocator, Depends(ids_of)]):        # FastAPI
    async def make(request):  ids = ids_of(request)                         # Starlette

Needs only Starlette, on which FastAPI depends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Unpack

from starlette.requests import HTTPConnection

from allocator.aio import AsyncAllocator, Settings
from allocator.errors import InvalidSetting
from allocator.sync import Allocator

if TYPE_CHECKING:
    from sqlalchemy import URL, Engine

STATE = "ids"
"""The key in `request.state`: the application's lifespan may not use it too."""


def lifespan(
    database: str | URL | Engine | Allocator | AsyncAllocator,
    own: Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]] | None = None,
    **settings: Unpack[Settings],
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """Make a lifespan that opens an allocator, and closes it after the last request.

    database: the first argument of `AsyncAllocator`, or an `AsyncAllocator`, which the caller closes.
    own: the application's lifespan; it runs inside that of the allocator.
    settings: of `AsyncAllocator`.

    Raises `InvalidSetting` if the state of `own` has a key `ids` too.
    """

    @asynccontextmanager
    async def running(app: Any) -> AsyncIterator[dict[str, Any]]:
        if isinstance(database, AsyncAllocator):
            allocator: AbstractAsyncContextManager[AsyncAllocator] = nullcontext(database)
        else:
            allocator = AsyncAllocator(database, **settings)
        async with allocator as ids, own(app) if own else nullcontext() as state:
            if STATE in (state or {}):
                raise InvalidSetting(f"the application's lifespan sets the state {STATE!r} too; rename that key")
            yield {**(state or {}), STATE: ids}

    return running


def ids_of(request: HTTPConnection) -> AsyncAllocator:
    """Get the allocator in a request or WebSocket; in FastAPI with `Depends(ids_of)`. Raises `InvalidSetting`."""
    ids = getattr(request.state, STATE, None)
    if not isinstance(ids, AsyncAllocator):
        raise InvalidSetting(
            "this application has no allocator: pass it lifespan=lifespan(URL), and in tests write: "
            "with TestClient(app) as client:"
        )
    return ids
