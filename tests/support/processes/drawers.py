"""Allocators that draw ids when they are told to, here or in processes of their own: a line of JSON a request."""

import json
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from allocator import Allocator
from allocator.errors import AllocatorError, DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate, UnknownTag
from support.closing import Closing

PROCESS = """
import json, sys
from support.processes.drawers import draw
from allocator import Allocator
with Allocator(sys.argv[1], **json.loads(sys.argv[2])) as allocator:
    for line in sys.stdin:
        drawn = draw(allocator, *json.loads(line))
        print(json.dumps([drawn.ids, drawn.error]), flush=True)
"""
TESTS = Path(__file__).parents[2]


@dataclass
class Drawn:
    """Ids, and the error that ended the draw early, as `Name: words`."""

    ids: list[int] = field(default_factory=list)
    error: str | None = None

    @property
    def failure(self) -> str:
        """The name of the error, empty where there was none."""
        return (self.error or "").partition(":")[0]


ABSENT = (DatabaseUnavailable, SchemaDamaged, SchemaOutOfDate, UnknownTag)
"""While a dump is loaded over the tables, they are missing for a moment, and then they have no keys yet."""


def draw(allocator: Allocator, tag: str, count: int, pause: float, patience: float) -> Drawn:
    drawn, end = Drawn(), time.monotonic() + patience
    while len(drawn.ids) < count and drawn.error is None:
        try:
            drawn.ids.append(allocator.next_id(tag))
            time.sleep(pause)
        except AllocatorError as error:
            if not isinstance(error, ABSENT) or time.monotonic() > end:
                drawn.error = f"{type(error).__name__}: {error}"
    return drawn


class Drawer(Closing):
    """One allocator, which opens nothing before it is first told to draw."""

    @abstractmethod
    def begin(self, tag: str, count: int, pause: float = 0.0, patience: float = 0.0) -> None:
        """Start to draw, with so many seconds between two ids; for how long to bear with an absent database."""

    @abstractmethod
    def end(self) -> Drawn: ...


class Process(Drawer):
    def __init__(self, url: str, **settings: Any) -> None:
        words = [sys.executable, "-c", PROCESS, url, json.dumps(settings)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd=TESTS)

    def begin(self, tag: str, count: int, pause: float = 0.0, patience: float = 0.0) -> None:
        assert self.process.stdin is not None
        print(json.dumps([tag, count, pause, patience]), file=self.process.stdin, flush=True)

    def end(self) -> Drawn:
        assert self.process.stdout is not None
        return Drawn(*json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Thread(Drawer):
    """Here, which is quicker to start; it shares nothing with the others either."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.allocator = Allocator(url, **settings)
        self.pool = ThreadPoolExecutor(1)

    def begin(self, tag: str, count: int, pause: float = 0.0, patience: float = 0.0) -> None:
        self.drawing = self.pool.submit(draw, self.allocator, tag, count, pause, patience)

    def end(self) -> Drawn:
        return self.drawing.result(120)

    def close(self) -> None:
        self.pool.shutdown()
        self.allocator.close()


def draw_together(drawers: Iterable[Drawer], tag: str, count: int) -> list[Drawn]:
    """At once."""
    drawers = list(drawers)
    for drawer in drawers:
        drawer.begin(tag, count)
    return [drawer.end() for drawer in drawers]
