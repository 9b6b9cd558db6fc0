"""Where the service listens, and what a supervisor may hand over."""

from __future__ import annotations

import os
import socket

import pytest

from allocator.errors import InvalidSetting
from allocator.service.http_server import address_of, handed_over, place_of


def test_a_socket_is_taken_only_where_it_was_meant_for_this_process(monkeypatch):
    for process, count in ((None, "1"), (str(os.getpid() + 1), "1")):
        monkeypatch.setenv("LISTEN_FDS", count)
        monkeypatch.setenv("LISTEN_PID", process) if process else monkeypatch.delenv("LISTEN_PID", raising=False)
        assert handed_over() is None

    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "2")
    with pytest.raises(InvalidSetting, match="can hand over one socket, but LISTEN_FDS is '2'"):
        handed_over()


def test_a_socket_says_where_it_listens(tmp_path):
    path = str(tmp_path / "ids.sock")
    with socket.socket(socket.AF_UNIX) as unix, socket.create_server(("127.0.0.1", 0)) as port:
        unix.bind(path)
        number = port.getsockname()[1]

        assert place_of(unix) == {"uds": path}
        assert place_of(port) == {"uds": "", "host": "127.0.0.1", "port": number}
        assert address_of(unix, is_https=True) == f"unix://{path}"
        assert address_of(port, is_https=True) == f"https://127.0.0.1:{number}"
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as six:
        assert address_of(six, is_https=False) == f"http://[::1]:{six.getsockname()[1]}"
