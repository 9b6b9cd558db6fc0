"""The rates of tokens, shared by all workers of a service: two numbers a token, in a file that all of them map.

Nothing locks it: two workers that count at the very same moment may let one request too many in, and a worker that is
killed leaves nothing behind that another one would wait for.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from time import monotonic
from typing import TypeAlias

from allocator.rules.token import Token
from allocator.rules.token_bucket import pause, used

States: TypeAlias = "memoryview[float]"

TOKENS = 65_536
"""More tokens than this share their states, and so their rates."""


def states_of(folder: str) -> States:
    """Two states for each token; `monotonic` is one clock for all processes of a machine."""
    path = Path(folder) / "rates"
    with path.open("a+b") as file:
        if path.stat().st_size < 16 * TOKENS:
            file.truncate(16 * TOKENS)
        return memoryview(mmap.mmap(file.fileno(), 16 * TOKENS)).cast("d")


class Rates:
    """The two rates of one token."""

    __slots__ = ("_at", "_ids", "_requests", "_states")

    def __init__(self, token: Token, states: States) -> None:
        self._ids, self._requests = token.ids_rate, token.requests_rate
        self._states = states
        self._at = 2 * (token.number % TOKENS)

    @property
    def limited(self) -> bool:
        return self._ids is not None or self._requests is not None

    def admit(self) -> float:
        """Count a request; or, uncounted, for how many seconds it must wait."""
        now, states, at = monotonic(), self._states, self._at
        wait = max(
            pause(states[at], now) if self._ids else 0.0,
            pause(states[at + 1], now) if self._requests else 0.0,
        )
        if self._requests and not wait:
            states[at + 1] = used(states[at + 1], now, 1, self._requests)
        return wait

    def charge(self, ids: int) -> None:
        """Count ids that were given: what is more than the rate is paid for by waiting, afterwards."""
        if self._ids:
            self._states[self._at] = used(self._states[self._at], monotonic(), ids, self._ids)
