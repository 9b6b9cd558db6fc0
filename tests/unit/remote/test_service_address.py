"""The addresses of services, and who may overhear a token on the way there."""

from __future__ import annotations

import pytest

from allocator.errors import InvalidDatabase
from allocator.remote.http import Servers
from allocator.remote.service_address import addresses


def test_a_scheme_may_have_capitals():
    for given, address in (
        ("HTTP://Ids.example.org:8000/x/", "http://Ids.example.org:8000/x"),
        ("Https://[::1]", "https://[::1]"),
        ("UNIX:///Run/Ids.sock", "unix:///Run/Ids.sock"),
        ("postgresql://h/n", None),
    ):
        assert addresses(given) == ([address] if address else [])


def test_a_host_that_cannot_be_looked_up_is_refused():
    for host in ("a..b", "a" * 64, "\u00e4" * 64):
        with pytest.raises(InvalidDatabase, match="an address looks like"):
            addresses(f"http://{host}")


def test_a_token_that_others_may_overhear_is_warned_of_once(caplog):
    overheard = ["http://ids.example.org", "http://10.0.0.1:8000/x"]
    alone = ["https://10.0.0.1", "http://127.0.0.2:8000", "http://localhost", "http://[::1]:1", "unix:///run/ids.sock"]
    Servers(alone, "secret", 1)
    Servers(overheard, None, 1)
    assert caplog.messages == []
    Servers(overheard + alone, "secret", 1)
    assert caplog.messages == [f"the token is sent unencrypted to {', '.join(overheard)}; use https://"]
