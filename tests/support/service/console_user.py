"""Somebody at the console, without a browser: sends a token as the password of HTTP Basic."""

from __future__ import annotations

import html
from base64 import b64encode

from support.service.served import Reply, Served


def basic(secret: str) -> str:
    """The Authorization header of a browser."""
    return "Basic " + b64encode(f"anybody:{secret}".encode()).decode()


class Seat:
    """secret: of the token; empty before a service that is open to this machine."""

    def __init__(self, service: Served, secret: str = "") -> None:
        self.service = service
        self.sent = {"Authorization": basic(secret)} if secret else {}

    def get(self, path: str, **headers: str) -> Reply:
        return self.service.get(path, **(self.sent | headers))

    def text(self, path: str, **headers: str) -> str:
        """A page as it is read, which must be there."""
        answer = self.get(path, **headers)
        assert answer.status == 200, answer.body
        return html.unescape(answer.body.decode())
