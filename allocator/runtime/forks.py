"""Reset every allocator in a forked child, so that parent and child do not issue the same ids.

Python runs our hook in the child of `os.fork()`, which is how multiprocessing, gunicorn and Celery fork. A fork by C
code runs no hook; uWSGI has one of its own. So `catch_up` compares process ids before each refill and each query.
Ids that were being served during a fork without hooks may have been issued twice: their owner raises `ForkedUnseen`.
A child of which one part could not be renewed is not renewed: `catch_up` begins again, and raises until all are.

Signals are held back in a child until it is renewed. A handler may run between any two steps of an at-fork hook. One
that draws would get an id of the parent, and what it raises skips the rest of that hook alone, so that the child would
go on with the ids of its parent.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import platform
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Protocol
from weakref import WeakSet

from allocator.errors import AllocatorClosed, AllocatorError, ForkedUnseen, NotCopyable, ReentrantCall, Uncopyable
from allocator.runtime.iterators import LockedIterator, first_and_rest


class Served(Protocol):
    def _forget(self) -> None:
        """Serve none of the parent's ids."""


class Forkable(Protocol):
    def _supplies(self) -> Sequence[Served]:
        """What serves ids; it forgets them before anything is renewed."""

    def after_fork(self) -> None: ...


alive: WeakSet[Forkable] = WeakSet()
callbacks: list[Callable[[], None]] = []
process = os.getpid()
unseen = False
"""True while `catch_up` resets everything: no hook ran at the fork, so ids may have been served since."""
_catching_up = threading.RLock()

RANGES = type(iter(range(0))), type(iter(range(1 << 64)))
"""CPython iterates over ranges by two types: the second one for numbers beyond a C long."""


def register(thing: Forkable) -> None:
    """In every forked child, while `thing` is alive: empty its supplies, and then call `thing.after_fork()`."""
    catch_up()  # first: else a late reset would take the new object for one of the parent's
    alive.add(thing)


def in_child(callback: Callable[[], None]) -> None:
    """Call `callback` in every forked child."""
    callbacks.append(callback)


def renew_all() -> None:
    """Reset everything that is registered; runs in a forked child before other code."""
    global _catching_up
    # A thread of the parent may have held the old one during the fork.
    _catching_up = threading.RLock()
    _renew()


def catch_up() -> bool:
    """Reset everything if this process was forked without hooks, or not renewed whole; return whether it was."""
    if os.getpid() == process:
        return False
    if is_held_here(_catching_up):
        raise reentrant_call("a forked process")
    with _catching_up:
        if os.getpid() != process:
            _renew_late()
    return True


def _renew_late() -> None:
    global unseen
    unseen = True
    try:
        _renew()
    except Exception as error:
        raise ForkedUnseen(
            f"this process was forked, and gives no ids, since it cannot be renewed: {type(error).__name__}: {error}"
        ) from error
    finally:
        unseen = False


def _renew() -> None:
    global process
    things = list(alive)
    supplies = [supply for thing in things for supply in thing._supplies()]
    failures = []
    for step in [
        *(supply._forget for supply in supplies),  # first of all: then nothing below can leave ids of the parent
        *callbacks,
        *(thing.after_fork for thing in things),
    ]:
        try:
            step()
        except BaseException as error:  # the others too: they are still the parent's
            failures.append(error)
    if failures:
        raise failures[0]
    # Last: until then `catch_up` tells no other thread that the reset is done.
    process = os.getpid()


def check_not_ending() -> None:
    """Raise `AllocatorClosed` during interpreter shutdown: threads are gone, and may have left locks taken."""
    if sys.is_finalizing():
        raise AllocatorClosed(
            "no ids can be drawn during interpreter shutdown; draw them earlier, for example in an atexit function"
        )


def is_held_here(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock: then a signal handler or destructor interrupted the holder.

    `threading.Condition` uses the same private method.
    """
    return bool(lock._is_owned())  # type: ignore[attr-defined]


class Locked(Protocol):
    _lock: threading.RLock

    @property
    def _name(self) -> str:
        """The beginning of messages."""


def enter(thing: Locked) -> None:
    """Before a call takes the lock of `thing`: catch up with a fork, and raise where this thread already holds it.

    The fork is first: a thread of the parent may have held the lock, and the reset replaces it.
    """
    catch_up()
    check_not_ending()
    if is_held_here(thing._lock):
        raise reentrant_call(thing._name)


def reentrant_call(name: str) -> AllocatorError:
    return ReentrantCall(
        f"{name}: a signal handler or destructor asked for an id while it interrupted a call for the same ids; "
        "draw ids outside of signal handlers and destructors"
    )


def this_process() -> tuple[str, int]:
    """Host and process id, for the operator who reads the tables."""
    return platform.node() or "unknown", os.getpid()


def exhaust(values: Iterator[Any]) -> None:
    """Empty an iterator of ids, which a `for` loop or an interrupted call may still hold."""
    if isinstance(values, LockedIterator):
        values.empty()
    elif isinstance(values, RANGES):
        values.__setstate__(sys.maxsize)  # type: ignore[attr-defined]
    elif isinstance(values, map):
        deque(values, 0)  # a block of 256 at most


class Unforkable(Uncopyable):
    """A generator whose caller gives it a node or worker; a forked child may not use it, since the parent does."""

    _name: ClassVar[str]
    _given: ClassVar[str]
    """What the caller gave, in one word: the error says that a child must be given another."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._forked = False
        self._values: Iterator[int] = iter(())
        register(self)

    def _check_process(self) -> None:
        if self._forked:
            raise NotCopyable(
                f"a {type(self).__name__} cannot be used after a fork: the parent uses its {self._given}; create one "
                f"with another {self._given}"
            )

    def _serve(self, values: Iterable[int]) -> int:
        """The first of `values`; the next calls get the others."""
        first, self._values = first_and_rest(values)
        if self._forked:  # perhaps by a signal handler, while these values were made
            self._forget()
        self._check_process()
        return first

    def _supplies(self) -> Sequence[Served]:
        return [self]

    def _forget(self) -> None:
        self._forked = True
        exhaust(self._values)
        self._values = iter(())

    def after_fork(self) -> None:
        self._lock = threading.RLock()


def forked_unseen(name: str) -> AllocatorError:
    return ForkedUnseen(
        f"{name}: C code forked this process while it held ids, without Python's fork hooks; the parent or another "
        "child may have issued the same ids. Draw no id before the fork, load the application after it (uWSGI: "
        "lazy-apps = true), or enable the hooks (uWSGI: py-call-uwsgi-fork-hooks = true)"
    )


def hook_into_uwsgi(uwsgi: Any) -> None:
    """Register `renew_all` with uWSGI, which forks in C.

    uWSGI calls one function after a fork; `uwsgidecorators` lets several share it.
    """
    try:
        import_module("uwsgidecorators").postfork(renew_all)
    except Exception:  # not installed, or uWSGI runs without a master process
        before = getattr(uwsgi, "post_fork_hook", None)

        def hook() -> None:
            renew_all()
            if before is not None:
                before()

        uwsgi.post_fork_hook = hook


class Masks(threading.local):
    """The signal masks of this thread at its forks. Several, since a handler may fork in the middle of a fork."""

    def __init__(self) -> None:
        self.noted: list[set[int]] = []


masks = Masks()


def note() -> None:
    masks.noted.append(_signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def restore() -> None:
    """Restore the mask of the fork; handlers of signals that were held back run in here."""
    mask = masks.noted.pop() if masks.noted else ()  # a handler raised in `note`
    _signal.pthread_sigmask(signal.SIG_SETMASK, mask)


if hasattr(os, "register_at_fork"):
    # Held before the fork, since hooks of others run in the child before ours. By a hook in C: in one of Python, as the
    # function of `signal` is, a handler may run, and raise, before it holds any. `note`, registered last, runs first.
    hold = partial(_signal.pthread_sigmask, signal.SIG_BLOCK, signal.valid_signals())
    os.register_at_fork(before=hold, after_in_parent=restore)
    os.register_at_fork(before=note, after_in_child=renew_all)
    os.register_at_fork(after_in_child=restore)
if "uwsgi" in sys.modules:  # true only inside uWSGI
    hook_into_uwsgi(sys.modules["uwsgi"])
