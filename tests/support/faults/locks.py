"""What a thread does while it holds a lock of the package: by rule 12 it neither sleeps, logs, calls nor reads."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

import allocator

PACKAGE = Path(allocator.__file__).parent
ACTS = ("open", "sqlite3.connect", "socket.connect", "subprocess.Popen", "os.listdir", "os.rename")
"""Python's audit events that read, wait or ask."""

held = threading.local()
watching: set[tuple[str, str]] | None = None
"""What was done under which lock, while `watched`."""


def note(what: str) -> None:
    for place in getattr(held, "places", ()):
        if watching is not None:
            watching.add((place, what))


class Watched:
    """A lock that its thread remembers. `place`: the file that made it."""

    def __init__(self, lock: Any, place: str) -> None:
        self._lock, self._place = lock, place

    def acquire(self, *how: Any, **settings: Any) -> bool:
        taken = bool(self._lock.acquire(*how, **settings))
        if taken:
            held.places = [*getattr(held, "places", ()), self._place]
        return taken

    def release(self) -> None:
        held.places.remove(self._place)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def by_us(make: Any) -> Any:
    """Makes locks that are watched where the package makes them."""

    def made() -> Any:
        place = Path(sys._getframe(1).f_code.co_filename)
        return Watched(make(), str(place.relative_to(PACKAGE))) if place.is_relative_to(PACKAGE) else make()

    return made


class Noting(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        note("log")


def audit(name: str, _: Any) -> None:
    if watching is not None and name in ACTS:
        note(name)


sys.addaudithook(audit)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[tuple[str, str]]]:
    """What is done under the locks that the package makes meanwhile, as pairs of its file and what was done."""
    global watching
    found: set[tuple[str, str]] = set()
    handler, logger = Noting(), logging.getLogger("allocator")

    def statement(*_: Any) -> None:
        note("statement")

    def sleep(seconds: float, really: Any = time.sleep) -> None:
        note("sleep")
        really(seconds)

    with monkeypatch.context() as patched:
        for name in ("Lock", "RLock"):
            patched.setattr(threading, name, by_us(getattr(threading, name)))
        patched.setattr(time, "sleep", sleep)
        logger.addHandler(handler)
        event.listen(Engine, "before_cursor_execute", statement)
        watching = found
        try:
            yield found
        finally:
            watching = None
            event.remove(Engine, "before_cursor_execute", statement)
            logger.removeHandler(handler)
