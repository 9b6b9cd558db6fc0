"""Drawing on several threads that are switched as often as Python can."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def switching_every(seconds: float) -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def draw_on_threads(next_id: Callable[[], T], threads: int, each: int) -> list[list[T]]:
    with switching_every(1e-5), ThreadPoolExecutor(threads) as pool:
        jobs = [pool.submit(lambda: [next_id() for _ in range(each)]) for _ in range(threads)]
        return [job.result() for job in jobs]
