"""Checks before taking a lock: refuse if its owner can never release it."""

from __future__ import annotations

import sys
import threading

from allocator.errors import AllocatorClosed, AllocatorError, ForkedUnseen, ReentrantCall


def check_not_ending() -> None:
    """Raise `AllocatorClosed` when the interpreter ends: its threads are gone by then, with the locks they had."""
    if sys.is_finalizing():
        raise AllocatorClosed("the interpreter ends, and no more ids can be had; draw them before, as in atexit")


def is_mine(lock: threading.RLock) -> bool:
    """Whether this very thread has it, as `threading.Condition` asks: it was interrupted, and calls again."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def check_entry(lock: threading.RLock, name: str) -> None:
    """Raise where `lock` must not be waited for; `name` is of what is drawn."""
    check_not_ending()
    if is_mine(lock):
        raise reentrant(name)


def reentrant(name: str) -> AllocatorError:
    return ReentrantCall(
        f"{name}: a signal handler or destructor interrupted a call for the same ids; draw them outside of it"
    )


def repeated(name: str) -> AllocatorError:
    return ForkedUnseen(
        f"{name}: C code forked this process with ids in memory, and no hook of Python's ran: the parent, or another "
        "child, may have given out the same ones. Draw none before the fork, load the application after it (uWSGI: "
        "lazy-apps = true), or have the hooks run (uWSGI: py-call-uwsgi-fork-hooks = true)"
    )
