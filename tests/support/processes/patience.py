"""Waiting until something holds: whoever waits says for how long, and what it means that it did not."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from allocator.errors import DatabaseUnavailable
from allocator.runtime.threads import Work

T = TypeVar("T")


def until(
    holds: Callable[[], object],
    seconds: float = 15.0,
    *,
    every: float = 0.05,
    hopeless: Callable[[], bool] = lambda: False,
) -> bool:
    """Whether it held within the time; asked at least once, and no longer where it is hopeless."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end or hopeless():
            return False
        time.sleep(every)
    return True


def patiently(call: Callable[[], T], refusal: type[Exception] = DatabaseUnavailable) -> T:
    """What a call gives as soon as it is no longer refused, as where the pause after a failure has ended."""
    found: list[T] = []

    def succeeds() -> bool:
        with suppress(refusal):
            found.append(call())
        return bool(found)

    assert until(succeeds)
    return found[0]


def error_of(work: Work[Any], seconds: float = 15.0) -> BaseException | None:
    """With what it ends, which is soon."""
    assert until(lambda: work.ended, seconds, every=0.001)
    return work.ended[0][1]
