"""Allocators that draw ids when they are told to, in processes of their own."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from allocator import Allocator
from allocator.errors import AllocatorError, DatabaseUnavailable
from support.closing import Closing
from support.processes.crew import PROCESSES


@dataclass
class Drawn:
    """Ids, and the error that ended the draw early, as `Name: words`."""

    ids: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def failure(self) -> str:
        """The name of the error, empty where there was none."""
        return (self.error or "").partition(":")[0]


def draw(allocator: Allocator, tag: str, count: int, pause: float, patience: float) -> Drawn:
    drawn, end = Drawn(), time.monotonic() + patience
    while len(drawn.ids) < count and drawn.error is None:
        try:
            drawn.ids.append(allocator.next_id(tag))
            time.sleep(pause)
        except AllocatorError as error:
            if not isinstance(error, DatabaseUnavailable) or time.monotonic() > end:
                drawn.error = f"{type(error).__name__}: {error}"
    return drawn


def serve(told: Any, url: str, settings: dict[str, Any]) -> None:
    with Allocator(url, **settings) as allocator:
        while True:
            told.send(draw(allocator, *told.recv()))


class Drawer(Closing):
    """One allocator, which opens nothing before it is first told to draw."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.pipe, theirs = PROCESSES.Pipe()
        self.process = PROCESSES.Process(target=serve, args=(theirs, url, settings), daemon=True)
        self.process.start()
        theirs.close()

    def begin(self, tag: str, count: int, pause: float = 0.0, patience: float = 0.0) -> None:
        """Start to draw, with so many seconds between two ids; for how long to bear with an absent database."""
        self.pipe.send((tag, count, pause, patience))

    def end(self) -> Drawn:
        found: Drawn = self.pipe.recv()
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def draw_together(drawers: Iterable[Drawer], tag: str, count: int) -> list[Drawn]:
    """At once."""
    drawers = list(drawers)
    for drawer in drawers:
        drawer.begin(tag, count)
    return [drawer.end() for drawer in drawers]
