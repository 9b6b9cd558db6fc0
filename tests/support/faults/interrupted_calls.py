"""A tag in memory whose calls are interrupted at each step in turn, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from allocator import Allocator
from allocator.errors import ReentrantCall
from support.faults.call_steps import Steps, acting
from support.memory.database import Source

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
