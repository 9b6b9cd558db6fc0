"""Choose the next database, and skip databases that fail.

They are used in turn. A database that fails is skipped at once. After a pause, doubled at each failure, it is probed,
and used again when the probe succeeds. `now` is the caller's monotonic clock, in seconds; callers hold a lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.errors import AllocatorError
from allocator.schemes.shared.retry_pace import Wait

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a failed database is probed: doubled at each failure, from the first to the longest."""

STEADY = 30.0
"""Seconds after which a recovered database counts as healthy. If it fails sooner, its pause keeps doubling."""


@dataclass(slots=True)
class State:
    """`error` is the reason why the database is skipped, None while it is in use."""

    error: AllocatorError | None = None
    pause: float = 0.0
    probe_at: float = 0.0
    probing: bool = False
    back_at: float = float("-inf")


class Rotation:
    """The databases, by number from 0."""

    def __init__(self, count: int) -> None:
        self.states = [State() for _ in range(count)]
        self._next = 0

    def next(self, now: float) -> int | Wait:
        """The database to use; if all fail, how long to wait."""
        for step in range(len(self.states)):
            number = (self._next + step) % len(self.states)
            if self.states[number].error is None:
                self._next = number + 1
                return number
        soonest = min((state.probe_at for state in self.states if not state.probing), default=now + FIRST_PAUSE)
        return Wait(max(0.0, soonest - now))

    def failed(self, number: int, error: AllocatorError, now: float) -> bool:
        """Skip the database from now on; True if it was in use until now."""
        state = self.states[number]
        was_used = state.error is None
        if was_used or state.probing:
            soon = state.probing or now - state.back_at < STEADY
            state.pause = min(2 * state.pause, LONGEST_PAUSE) if state.pause and soon else FIRST_PAUSE
            state.probe_at = now + state.pause
        state.error, state.probing = error, False
        return was_used

    def due(self, now: float, most: int) -> list[int]:
        """Up to `most` databases to probe now; each counts as being probed from now on."""
        numbers = [n for n, s in enumerate(self.states) if s.error is not None and now >= s.probe_at]
        for number in numbers[:most]:
            self.states[number].probing = True
            self.states[number].probe_at = now + LONGEST_PAUSE  # then again, should nobody say how it ended
        return numbers[:most]

    def worked(self, number: int, now: float) -> None:
        """Use the database again after a successful probe. Its pause is reset only after `STEADY` seconds."""
        self.states[number] = State(pause=self.states[number].pause, back_at=now)
