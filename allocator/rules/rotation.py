"""Which shard is next, and which one is left alone because it failed.

Shards are used in turn. One that fails is skipped at once; after a pause that doubles with each failure it is probed,
and used again when the probe succeeds. `now` is the caller's monotonic clock, in seconds; callers hold a lock.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.errors import AllocatorError
from allocator.schemes.retry import Wait

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds before a shard that failed is probed."""


STEADY = 30.0
"""Seconds after which a shard that came back counts as well; one that fails sooner passes the probe and no more."""


@dataclass(slots=True)
class State:
    """`error` is why the shard is left alone, None while it is used."""

    error: AllocatorError | None = None
    pause: float = 0.0
    probe_at: float = 0.0
    probing: bool = False
    back_at: float = float("-inf")


class Rotation:
    """The shards, by number from 0."""

    def __init__(self, count: int) -> None:
        self.states = [State() for _ in range(count)]
        self._next = 0

    def add(self, error: AllocatorError, now: float) -> int:
        """One more, which is to be probed first."""
        self.states.append(State(error, FIRST_PAUSE, now))
        return len(self.states) - 1

    def next(self, now: float) -> int | Wait:
        """The shard to use; where none is in use, for how long to wait and why."""
        for step in range(len(self.states)):
            number = (self._next + step) % len(self.states)
            if self.states[number].error is None:
                self._next = number + 1
                return number
        soonest = min((state.probe_at for state in self.states if not state.probing), default=now + FIRST_PAUSE)
        return Wait(max(0.0, soonest - now), self.errors()[0])

    def errors(self) -> list[AllocatorError]:
        return [state.error for state in self.states if state.error is not None]

    def failed(self, number: int, error: AllocatorError, now: float) -> bool:
        """Leave it alone; True when it was in use until now."""
        state = self.states[number]
        was_used = state.error is None
        if was_used or state.probing:
            soon = state.probing or now - state.back_at < STEADY
            state.pause = min(2 * state.pause, LONGEST_PAUSE) if state.pause and soon else FIRST_PAUSE
            state.probe_at = now + state.pause
        state.error, state.probing = error, False
        return was_used

    def due(self, now: float) -> list[int]:
        """Those whose pause is over; a probe of them is under way from here on."""
        found = [n for n, s in enumerate(self.states) if s.error is not None and not s.probing and now >= s.probe_at]
        for number in found:
            self.states[number].probing = True
        return found

    def worked(self, number: int, now: float) -> None:
        """A probe succeeded: use it again. The pauses begin anew once it has been well for some time."""
        self.states[number] = State(pause=self.states[number].pause, back_at=now)
