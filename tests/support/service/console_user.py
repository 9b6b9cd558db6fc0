"""Somebody at the console, without a browser: keeps the cookie."""

from __future__ import annotations

import html
from typing import Any
from urllib.parse import urlencode

from support.service.served import Reply, Served

FROM_US = {"Sec-Fetch-Site": "same-origin"}


class Seat:
    def __init__(self, service: Served) -> None:
        self.service = service
        self.cookie = ""

    def get(self, path: str, **headers: str) -> Reply:
        return self.service.get(path, **self._sent(headers))

    def text(self, path: str, **headers: str) -> str:
        """A page as it is read, which must be there."""
        answer = self.get(path, **headers)
        assert answer.status == 200, answer.body
        return html.unescape(answer.body.decode())

    def send(self, path: str, fields: dict[str, str], headers: dict[str, str] | None = None) -> Reply:
        """A form as it is, with nothing added but the cookie."""
        sent = {"Content-Type": "application/x-www-form-urlencoded", **(FROM_US if headers is None else headers)}
        return self.service.post(path, body=urlencode(fields), **self._sent(sent))

    def sign_in(self, secret: str, there: str = "/") -> Reply:
        answer = self.send("/console/sign-in", {"token": secret, "next": there})
        self.cookie = answer.headers.get("Set-Cookie", "").partition(";")[0]
        return answer

    def _sent(self, headers: dict[str, Any]) -> dict[str, Any]:
        return headers | ({"Cookie": self.cookie} if self.cookie else {})
