"""Hold signals back in a forked child until it is renewed.

A handler may run between any two steps of an at-fork hook. What it raises there skips the rest of that hook alone, and
the child would go on with the ids of its parent.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import os
import signal
import threading
from collections.abc import Callable
from functools import partial


class Masks(threading.local):
    """The signal masks of this thread at its forks. Several, since a handler may fork in the middle of a fork."""

    def __init__(self) -> None:
        self.noted: list[set[int]] = []


masks = Masks()


def note() -> None:
    masks.noted.append(_signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def drop() -> None:
    masks.noted.pop()


def restore() -> None:
    """Restore the mask of the fork; handlers of signals that were held back run in here."""
    was_interrupted = not masks.noted  # `note`, by a handler
    _signal.pthread_sigmask(signal.SIG_SETMASK, () if was_interrupted else masks.noted.pop())


def hold_in_children(renew: Callable[[], None]) -> None:
    """Call `renew` in each forked child, and no handler of a signal before its end.

    The parent is left alone: of its signals, another thread would take those that are held back in this one.
    """
    # By the function in C: the one of `signal` is Python, so a handler might run, and raise, before it is called.
    hold = partial(_signal.pthread_sigmask, signal.SIG_BLOCK, signal.valid_signals())
    os.register_at_fork(before=note, after_in_parent=drop, after_in_child=hold)
    os.register_at_fork(after_in_child=renew)
    os.register_at_fork(after_in_child=restore)
