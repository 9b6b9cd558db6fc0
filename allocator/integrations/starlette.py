"""The allocator of a Starlette or FastAPI application: there before the first request, and in every request.

    app = Starlette(routes=…, lifespan=lifespan("postgresql+psycopg://…"))
    app = FastAPI(lifespan=lifespan("postgresql+psycopg://…"))

    async def make(ids: Annotated[AsyncAllocator, Depends(ids_of)]):        # FastAPI
    async def make(request):  ids = ids_of(request)                         # Starlette

Needs Starlette alone, which FastAPI brings.
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
"""The name in the state of a request: `request.state.ids`."""


def lifespan(
    database: str | URL | Engine | Allocator | AsyncAllocator,
    own: Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any] | None]] | None = None,
    **settings: Unpack[Settings],
) -> Callable[[Any], AbstractAsyncContextManager[dict[str, Any]]]:
    """A lifespan with an allocator, which is closed after the last request.

    database: as of `AsyncAllocator`, or one of the application's own, which is not closed by this.
    own: the application's lifespan. It begins after the allocator is there and ends before that is closed.
    settings: as of `AsyncAllocator`. Raises `InvalidSetting` where both bring a state that is named `ids`.
    """

    @asynccontextmanager
    async def running(app: Any) -> AsyncIterator[dict[str, Any]]:
        if isinstance(database, AsyncAllocator):
            allocator: AbstractAsyncContextManager[AsyncAllocator] = nullcontext(database)
        else:
            allocator = AsyncAllocator(database, **settings)
        async with allocator as ids, own(app) if own else nullcontext() as state:
            if STATE in (state or {}):
                raise InvalidSetting(f"the state of a request has {STATE!r} already, out of the application's lifespan")
            yield {**(state or {}), STATE: ids}

    return running


def ids_of(request: HTTPConnection) -> AsyncAllocator:
    """The allocator, in a request or a WebSocket; in FastAPI as `Depends(ids_of)`. Raises `InvalidSetting`."""
    ids = getattr(request.state, STATE, None)
    if not isinstance(ids, AsyncAllocator):
        raise InvalidSetting("this application has no allocator: give it lifespan=lifespan(URL), and run its lifespan")
    return ids
