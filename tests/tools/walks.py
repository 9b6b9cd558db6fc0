"""How far a call goes through the package, which is what a maintainer reads who follows it.

    python -m tools.walks URL claim    the calls in their order, each after its thread; URL is of an empty database

A call is a function of the package that begins or goes on; one that a loop repeats counts once, since how often may be
the machine's. A move leads a thread from one file to another.
"""

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import allocator
from allocator import Allocator
from allocator.generators.worker_numbers import WorkerLease

PACKAGE = f"{Path(allocator.__file__).parent}/"
INLINED = {"<listcomp>", "<dictcomp>", "<setcomp>"}
"""Calls in Python 3.11 alone."""
TIMES = 7
QUIET = 0.2
"""Seconds without a call, after which a walk has ended: more than a commit takes."""
LEASE = 3.0
"""Seconds; it is renewed after each third."""
WARM = 50
"""Draws, after which the pool has all its threads."""

Steps = Generator[None, None, None]


class Call(NamedTuple):
    thread: int
    file: str
    function: str
    line: int


class Recorder:
    """Notes the calls of this thread, and of those that start from now on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE) and code.co_name not in INLINED:
            file = code.co_filename.removeprefix(PACKAGE)
            self.calls.append(Call(threading.get_ident(), file, code.co_qualname, code.co_firstlineno))

    def walk(self, steps: Steps) -> list[Call]:
        """What is called from one step to the next, and then by the threads."""
        next(steps)
        self.settle()
        self.calls.clear()
        next(steps)
        while not self.calls:
            time.sleep(QUIET)
        self.settle()
        return without_loops(self.calls)

    def settle(self) -> None:
        count = -1
        while count < len(self.calls):
            count = len(self.calls)
            time.sleep(QUIET)


def claim(url: str) -> Steps:
    """By a call that finds no id in memory, and waits."""
    with Allocator(url, step=100, max_step=100, runway=0.0) as ids:
        sequence = ids.sequence("claim")
        for _ in range(WARM):
            sequence.reserve(1)
        while True:
            sequence.next_id()
            while next(sequence._values, None) is not None or sequence._core.take():
                pass  # as if it had been drawn
            yield
            sequence.next_id()
            yield


def first(url: str) -> Steps:
    """The first id of a tag that exists, by a new allocator."""
    while True:
        with Allocator(url) as ids:
            yield
            ids.next_id("first")
            yield


class Unwatched(WorkerLease):
    """Without the thread that looks for its end each second, whatever is renewed meanwhile."""

    def _watch(self, *_: object) -> None: ...


def renewal(url: str) -> Steps:
    """Of the lease of a worker number, which nobody calls for."""
    with Allocator(url) as ids:
        while True:
            with Unwatched(ids._workers, "renewal", 10, LEASE, None):
                yield
                yield


def ticket(url: str) -> Steps:
    """Another one, not the first."""
    with Allocator(url) as ids:
        for _ in range(WARM):
            ids.ticket("ticket")
        while True:
            yield
            ids.ticket("ticket")
            yield


WALKS: dict[str, Callable[[str], Steps]] = {one.__name__: one for one in (claim, first, renewal, ticket)}


def walked(url: str, name: str) -> list[Call]:
    """The median of several walks: now and then a wait ends early and is repeated, or is not needed at all."""
    with Allocator(url) as ids:
        ids.create_tables()
        ids.next_id("first")
    recorder, steps = Recorder(), WALKS[name](url)
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        walks = [recorder.walk(steps) for _ in range(TIMES)]
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        steps.close()
    return sorted(walks, key=lambda calls: (len(calls), moves(calls)))[TIMES // 2]


def without_loops(calls: Iterable[Call]) -> list[Call]:
    """Without those that repeat the call before them on the same thread."""
    before: dict[int, Call] = {}
    found = []
    for call in calls:
        if before.get(call.thread) != call:
            found.append(call)
        before[call.thread] = call
    return found


def moves(calls: Iterable[Call]) -> int:
    """Of each thread by itself, since how they alternate is chance."""
    files = defaultdict(list)
    for call in calls:
        files[call.thread].append(call.file)
    return sum(one != other for each in files.values() for one, other in pairwise(each))


def numbers(database: str, url: str) -> Iterator[tuple[str, int]]:
    """With names such as `sqlite.claim-calls`."""
    for name in WALKS:
        calls = walked(url, name)
        yield f"{database}.{name}-calls", len(calls)
        yield f"{database}.{name}-modules", len({call.file for call in calls})
        yield f"{database}.{name}-moves", moves(calls)


if __name__ == "__main__":
    for each in walked(*sys.argv[1:]):
        thread = "main" if each.thread == threading.main_thread().ident else "other"
        print(f"{thread:5} {each.file}:{each.line} {each.function}")
