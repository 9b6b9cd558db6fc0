"""Who sent a request, for the log: the address, and the number of the token, of whose secret nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

from allocator.service.auth import EVERYTHING, Grant

NUMBER = "allocator.token"
"""Where a request holds the number of its token, once that is known."""

MAX_ADDRESS = 64


class Caller(NamedTuple):
    address: str
    token: int | None

    def __str__(self) -> str:
        return self.address + (", no valid token" if self.token is None else f", token {self.token}")


def mark(scope: MutableMapping[str, Any], grant: Grant) -> None:
    scope[NUMBER] = None if grant.token is EVERYTHING else grant.token.number


def caller_of(scope: Mapping[str, Any]) -> Caller:
    """A proxy on this machine names the address for whom it asks: that is text which anybody may have sent."""
    client = scope.get("client")
    address = ascii(client[0])[1:-1][:MAX_ADDRESS] if client else "an unknown address"
    return Caller(address, scope.get(NUMBER))
