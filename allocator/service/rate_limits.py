"""The two rates of a token, as one worker counts them: each worker of a service may use its share."""

from __future__ import annotations

from time import monotonic

from allocator.rules.rate_bucket import pause, used
from allocator.rules.token import Token


class Rates:
    """The rates of one token, divided by the workers of the service: nothing is shared, and nobody waits for a lock."""

    __slots__ = ("_ids", "_ids_at", "_requests", "_requests_at")

    def __init__(self, token: Token, workers: int) -> None:
        self._ids = token.ids_rate and token.ids_rate / workers
        self._requests = token.requests_rate and token.requests_rate / workers
        self._ids_at = self._requests_at = 0.0

    @property
    def limited(self) -> bool:
        return self._ids is not None or self._requests is not None

    def admit(self) -> float:
        """Count a request; or, uncounted, for how many seconds it must wait."""
        now = monotonic()
        wait = max(
            pause(self._ids_at, now) if self._ids else 0.0,
            pause(self._requests_at, now) if self._requests else 0.0,
        )
        if self._requests and not wait:
            self._requests_at = used(self._requests_at, now, 1, self._requests)
        return wait

    def charge(self, ids: int) -> None:
        """Count ids that were given: what is more than the rate is paid for by waiting, afterwards."""
        if self._ids:
            self._ids_at = used(self._ids_at, monotonic(), ids, self._ids)
