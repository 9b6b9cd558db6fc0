"""One way to call both faces: the asyncio face behind blocking calls."""

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

from allocator import Allocator, AsyncAllocator
from support.closing import Closing

FACES = ("sync", "asyncio")
PATIENT = 30
"""Seconds. The machine may be busy; a test of what is late gives a time of its own."""


class Awaited:
    """Any object of the asyncio face, each call run to its end."""

    def __init__(self, target: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.target = target
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if inspect.iscoroutinefunction(value):
            return lambda *args, **kwargs: self.loop.run_until_complete(value(*args, **kwargs))
        if callable(value):
            return lambda *args, **kwargs: Awaited(value(*args, **kwargs), self.loop)
        return Awaited(value, self.loop) if type(value).__module__.startswith("allocator.aio") else value

    def __iter__(self) -> Iterator[int]:
        iterator = self.target.__aiter__()
        while True:
            try:
                yield self.loop.run_until_complete(anext(iterator))
            except StopAsyncIteration:
                return


class Faces(Closing):
    """Makes allocators of one face and closes them at the end of a test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.loop = asyncio.new_event_loop()
        self.made: list[Any] = []

    def __call__(self, database: Any = None, **settings: Any) -> Any:
        settings = {"timeout": PATIENT, **settings}
        made: Any = (
            Allocator(database, **settings)
            if self.name == "sync"
            else Awaited(AsyncAllocator(database, **settings), self.loop)
        )
        self.made.append(made)
        return made

    def close(self) -> None:
        for made in self.made:
            made.close()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()
