"""Something happens in the middle of a call, at each of its steps in turn, as when a signal comes."""

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import allocator
from allocator import Allocator
from allocator.errors import ReentrantCall
from support.memory.database import Source

OURS = str(Path(allocator.__file__).parent)
CHECKED = ("CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD", "RESUME")
"""After these instructions, and at no other place, the interpreter runs the handlers of signals."""


@lru_cache
def places(code: CodeType) -> frozenset[int]:
    """The instructions of a function before which a handler of a signal may raise, with the same `except` in force."""
    guarded = {
        offset: (entry.target, entry.depth)
        for entry in dis._parse_exception_table(code)  # type: ignore[attr-defined]
        for offset in range(entry.start, entry.end)
    }
    found, before = set(), None
    for instruction in dis.get_instructions(code):
        if (
            before is not None
            and before.opname in CHECKED
            and guarded.get(before.offset) == guarded.get(instruction.offset)
        ):
            found.add(instruction.offset)
        before = instruction
    return frozenset(found)


class Steps:
    """Counts the steps of our own code, and acts at one of them. `raising`: only where a signal could really raise."""

    def __init__(self, at: int, act: Callable[[], object], raising: bool = False) -> None:
        self.at, self.act, self.raising = at, act, raising
        self.count = 0
        self.where = ""

    def trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode" and not (self.raising and frame.f_lasti not in places(frame.f_code)):
            self.count += 1
            if self.count == self.at + 1:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"
                self.act()
        return self.trace

    @property
    def acted(self) -> bool:
        return self.count > self.at


@contextmanager
def acting(steps: Steps) -> Iterator[None]:
    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 looks for it here, and only here
    sys.settrace(steps.trace)
    try:
        yield
    finally:
        sys.settrace(before)


# -- a tag in memory whose calls are interrupted at each step in turn, and what came of it


DRAWN, AFTER = 14, 30
"""Over a segment of ten ids, so that there are claims in advance and without; and on, as if nothing had happened."""


@dataclass
class Interrupted:
    source: Source
    owner: Allocator
    before: list[int] = field(default_factory=list)
    """What the call that was interrupted had drawn."""
    inside: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    refused: bool = False
    at: str = ""

    def __post_init__(self) -> None:
        self.ids = self.owner.sequence("order")

    @property
    def all(self) -> list[int]:
        return self.before + self.inside + self.after


def one(act: Callable[[Interrupted], object], at: int, raising: bool, timeout: float) -> tuple[Interrupted, Steps]:
    source = Source()
    found = Interrupted(source, Allocator(source, step=10, max_step=10, timeout=timeout))

    def acted() -> None:
        try:
            act(found)
        except ReentrantCall:
            found.refused = True

    steps = Steps(at, acted, raising)
    try:
        with acting(steps):
            found.before.extend(found.ids.next_id() for _ in range(DRAWN))
    except KeyboardInterrupt:
        pass
    found.at = steps.where
    return found, steps


def every_step(
    act: Callable[[Interrupted], object], *, raising: bool = False, stride: int = 1, timeout: float = 30.0
) -> Iterator[Interrupted]:
    """`act` at one step after the other, or at every so many; then the tag is drawn from again."""
    at = 0
    while True:
        found, steps = one(act, at, raising, timeout)
        try:
            if not steps.acted:
                return
            found.after.extend(found.ids.next_id() for _ in range(AFTER))
            yield found
        finally:
            found.owner.close()
        at += stride
