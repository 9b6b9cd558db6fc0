"""How many modules one refill passes, from `next_id` to the UPDATE and back."""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import allocator
from allocator import Allocator

HOUSE = str(Path(allocator.__file__).parent) + "/"
MOST = 19
"""Measured on SQLite, whose file each claim locks and opens. The other databases pass 14."""


@contextmanager
def modules_entered():
    """The modules of the allocator whose functions are called, on any thread that starts in here."""
    found: set[str] = set()

    def enter(frame, event, argument) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HOUSE):
            found.add(frame.f_code.co_filename.removeprefix(HOUSE))

    threading.setprofile(enter)
    sys.setprofile(enter)
    try:
        yield found
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def test_a_refill_passes_few_modules(url, tag):
    with modules_entered() as modules, Allocator(url, step=1, max_step=1, timeout=60) as ids:
        assert ids.next_id(tag) == 1
        assert ids.next_id(tag) == 2  # its claim ran in advance, and another is under way
        ids._background.submit(int).result(60)
        modules.clear()
        assert [ids.next_id(tag), ids.next_id(tag)] == [3, 4]
        passed = sorted(modules)

    assert len(passed) <= MOST, "\n".join(passed)
