"""Something happens in the middle of a call, at each of its steps in turn, as when a signal comes."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import allocator

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
