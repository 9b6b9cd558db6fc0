"""Checks before taking a lock: refuse if its owner can never release it."""

from __future__ import annotations

import sys
import threading

from allocator.errors import AllocatorClosed, AllocatorError, ForkedUnseen, ReentrantCall


def check_not_ending() -> None:
    """Raise `AllocatorClosed` during interpreter shutdown: threads are gone, and may have left locks taken."""
    if sys.is_finalizing():
        raise AllocatorClosed(
            "the interpreter is shutting down, so no ids can be drawn; draw them earlier, as in atexit"
        )


def is_held_here(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock: then a signal handler or destructor interrupted the holder.

    `threading.Condition` uses the same private method.
    """
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def check_entry(lock: threading.RLock, name: str) -> None:
    """Raise where waiting for `lock` could never end; `name` begins the message."""
    check_not_ending()
    if is_held_here(lock):
        raise reentrant_call(name)


def reentrant_call(name: str) -> AllocatorError:
    return ReentrantCall(
        f"{name}: a signal handler or destructor asked for an id while it interrupted a call for the same ids; "
        "draw ids outside of signal handlers and destructors"
    )


def forked_unseen(name: str) -> AllocatorError:
    return ForkedUnseen(
        f"{name}: C code forked this process while it held ids, without Python's fork hooks; the parent or another "
        "child may have issued the same ids. Draw no id before the fork, load the application after it (uWSGI: "
        "lazy-apps = true), or enable the hooks (uWSGI: py-call-uwsgi-fork-hooks = true)"
    )
