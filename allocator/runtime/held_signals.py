"""Hold signals back in a forked child until it is renewed.

A handler may run between any two steps of an at-fork hook. One that draws would get an id of the parent, and what it
raises skips the rest of that hook alone, so that the child would go on with the ids of its parent.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from collections.abc import Callable


class Masks(threading.local):
    """The signal masks of this thread at its forks. Several, since a handler may fork in the middle of a fork."""

    def __init__(self) -> None:
        self.noted: list[set[int]] = []


masks = Masks()


def hold() -> None:
    # By the function in C: the one of `signal` is Python, so a handler might run, and raise, before it is called.
    masks.noted.append(_signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    _signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())


def restore() -> None:
    """Restore the mask of the fork; handlers of signals that were held back run in here."""
    if masks.noted:  # else a handler raised in `hold`
        _signal.pthread_sigmask(signal.SIG_SETMASK, masks.noted.pop())


def hold_in_children(renew: Callable[[], None]) -> None:
    """Call `renew` in each forked child, and no handler of a signal before its end.

    Before the fork, since hooks of others run in the child before ours.
    """
    os.register_at_fork(before=hold, after_in_parent=restore)
    os.register_at_fork(after_in_child=renew)
    os.register_at_fork(after_in_child=restore)
