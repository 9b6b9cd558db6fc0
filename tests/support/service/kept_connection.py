"""A connection that stays open, and requests byte by byte."""

from __future__ import annotations

import json
import socket

from support.service.served import Served


class Connection:
    """One that stays open. It sends the same bytes for the same request."""

    def __init__(self, service: Served) -> None:
        self.socket = socket.create_connection(("127.0.0.1", service.port), timeout=30)
        self._received = self.socket.makefile("rb")

    def close(self) -> None:
        self._received.close()
        self.socket.close()

    def send(self, *requests: bytes) -> None:
        self.socket.sendall(b"".join(requests))

    def read(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._received.readline().split()[1])
        headers: dict[str, str] = {}
        while line := self._received.readline().decode().strip():
            name, _, value = line.partition(": ")
            headers[name] = value
        return status, headers, self._received.read(int(headers["content-length"]))

    def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        self.send(request)
        return self.read()

    def draw(self, request: bytes) -> int:
        status, _, body = self.ask(request)
        assert status == 200, body
        return int(json.loads(body)["ids"][0])


def post(tag: str, token: str = "", *lines: str) -> bytes:
    authorization = (f"Authorization: Bearer {token}",) if token else ()
    return "\r\n".join([f"POST /v1/tags/{tag}/ids HTTP/1.1", "Host: x", *authorization, *lines, "", ""]).encode()
