"""What the invariants raise; the code under test may catch it, as it catches whatever a claim raises."""

from __future__ import annotations

from typing import ClassVar

from support.distinct import Duplicate


class Violation(Duplicate):
    """A promise was broken."""

    raised: ClassVar[list[Violation]] = []
    """Since the world began: after each event the scheduler looks whether there is one."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.raised.append(self)
