"""After a fork the child owns nothing: whatever registered here starts anew in it.

Python calls us in the child of `os.fork()`, which is how multiprocessing, gunicorn and Celery fork. A fork by C code
tells nobody, but for uWSGI, which has a hook of its own. So whoever is about to decide or to ask a database compares
the process with the one that it knew (`catch_up`). What was being served when such a fork went unseen may have been
given out twice by then: its owner refuses to go on, so that somebody notices.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol
from weakref import WeakSet


class Forkable(Protocol):
    def after_fork(self) -> None: ...


alive: WeakSet[Forkable] = WeakSet()
callbacks: list[Callable[[], None]] = []
process = os.getpid()
unseen = False
"""While everything is renewed late, for a fork that ran no hooks."""
_catching_up = threading.Lock()


def register(thing: Forkable) -> None:
    """Call `thing.after_fork()` in every forked child, for as long as it lives."""
    catch_up()  # what is made after a fork is not the parent's
    alive.add(thing)


def in_child(callback: Callable[[], None]) -> None:
    """Call back in every forked child."""
    callbacks.append(callback)


def renew_all() -> None:
    """Called in a forked child, before anything else runs there."""
    global process, _catching_up
    _catching_up = threading.Lock()
    failures = []
    for renew in [*callbacks, *(thing.after_fork for thing in list(alive))]:
        try:
            renew()
        except Exception as error:  # the others still hold what is the parent's
            failures.append(error)
    process = os.getpid()
    if failures:
        raise failures[0]


def catch_up() -> bool:
    """Whether a fork had gone unseen: renew everything then, before it is used."""
    if os.getpid() == process:
        return False
    with _catching_up:
        if os.getpid() != process:
            _renew_late()
    return True


def _renew_late() -> None:
    global unseen
    unseen = True
    try:
        renew_all()
    finally:
        unseen = False


def listen_to_uwsgi(uwsgi: Any) -> None:
    """It forks in C, and calls one function of its module afterwards, which its decorators share among many."""
    try:
        import_module("uwsgidecorators").postfork(renew_all)
    except Exception:  # not installed, or refused for want of a master process
        before = getattr(uwsgi, "post_fork_hook", None)

        def hook() -> None:
            renew_all()
            if before is not None:
                before()

        uwsgi.post_fork_hook = hook


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=renew_all)
if "uwsgi" in sys.modules:  # only where uWSGI has loaded us
    listen_to_uwsgi(sys.modules["uwsgi"])
