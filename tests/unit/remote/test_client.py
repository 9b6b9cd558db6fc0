"""What service and client say to each other: there and back, and nothing odd gets in."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allocator import Allocator
from allocator.errors import InvalidDatabase, InvalidSetting
from allocator.remote.http import Servers
from allocator.remote.service_address import addresses
from allocator.remote.wire import (
    holder_of,
    number_lease_from_json,
    number_lease_to_json,
    seen_from_text,
    segment_from_json,
    segment_to_json,
    whole,
)
from allocator.schemes.shared.residues import Residue, merged
from allocator.schemes.worker_number_lease import NumberLease

MAX_ID = 2**63 - 1
numbers = st.integers(1, MAX_ID)


@example(start=MAX_ID - 9, count=10, step=1)
@given(start=st.integers(1, MAX_ID - 10**9), count=st.integers(1, 10**6), step=st.integers(1, 64))
def test_a_segment_comes_back_as_it_went(start, count, step):
    segment = range(start, start + (count - 1) * step + 1, step)

    assert segment_from_json(segment_to_json("order", segment), "order") == segment


def test_what_is_no_segment_is_refused(subtests):
    for odd in [
        {},
        {"start": "1", "stop": "1", "step": "1"},
        {"start": "-1", "stop": "5", "step": "1"},
        {"start": "1", "stop": "5", "step": "0"},
        {"start": "1.0", "stop": "5", "step": "1"},
        {"start": "1", "stop": "9" * 20, "step": "1"},
        {"start": str(2**63 - 3), "stop": str(2**63 + 900), "step": "1"},
        {"tag": "other", "start": "1", "stop": "5", "step": "1"},
        {"start": 1.5, "stop": "5", "step": "1"},
        {"start": True, "stop": "5", "step": "1"},
        {"start": None, "stop": "5", "step": "1"},
        {"start": "\u0661", "stop": "5", "step": "1"},
    ]:
        with subtests.test(odd=odd), pytest.raises(InvalidSetting):
            segment_from_json({"tag": "order"} | odd, "order")


def test_what_was_seen_is_refused_when_it_is_odd(subtests):
    for odd in ["1", "1.1", "1.1.1.1", "a.b.c", "1.1.-1", "1.1.1,", ",".join(["1.1.1"] * 101), "1.1." + "9" * 20]:
        with subtests.test(odd=odd), pytest.raises(InvalidSetting):
            seen_from_text(odd)


def test_two_that_have_seen_different_residues_have_seen_both():
    one, other = {Residue(1, 2): 5, Residue(2, 2): 8}, {Residue(1, 2): 7, Residue(1, 1): 3}

    assert merged(one, other) == {Residue(1, 2): 7, Residue(2, 2): 8, Residue(1, 1): 3}
    assert merged(one, {}) == one


def test_a_lease_comes_back_as_it_went():
    lease = NumberLease("@snowflake", 7, "0123456789abcdef" * 2, 20_000)

    assert number_lease_from_json(number_lease_to_json(lease, 5), "@snowflake", 3, 20_000) == lease
    with pytest.raises(InvalidSetting, match="number must be 0 to 3, got 7"):
        number_lease_from_json(number_lease_to_json(lease, 5), "@snowflake", 2, 20_000)
    with pytest.raises(InvalidSetting, match="the answer is for space '@snowflake', not for 'billing'"):
        number_lease_from_json(number_lease_to_json(lease, 5), "billing", 3, 20_000)
    for odd in ("", "x" * 32, "A" * 32, 5, None):
        with pytest.raises(InvalidSetting, match="32 hexadecimal digits"):
            holder_of(odd)


def test_numbers_may_be_digits():
    assert whole("x", "5") == whole("x", 5) == 5
    for odd in ("", "+5", "5 ", "0x5", "5.0", b"5", [5], "9" * 20):
        with pytest.raises(InvalidSetting):
            whole("x", odd)


def test_what_a_service_does_not_do_is_said_without_asking_it(subtests):
    with Allocator("http://127.0.0.1:1") as ids:
        for call in (
            lambda: ids.tags.repair("order"),
            lambda: ids.tags.last_claimed("order"),
            lambda: ids.tags.delete("order", 5),
            lambda: ids.tags.create("order", start_after_column="orders.id"),
            ids.backend.create_tables,
        ):
            with subtests.test(call=call), pytest.raises(InvalidSetting, match="service"):
                call()


def test_what_one_server_alone_is_asked_has_all_of_the_time(monkeypatch):
    given = []
    monkeypatch.setattr("allocator.remote.http.Server.answer", lambda _, timeout, *__: given.append(timeout) or b"1")
    Servers(["http://127.0.0.1:1", "http://127.0.0.1:2"], None, 100).request("PUT", "/", read=int, once=True)

    assert given[0] > 60


# -- the addresses of services, and who may overhear a token on the way there


def test_a_scheme_may_have_capitals():
    for written, address in (
        ("HTTP://Ids.example.org:8000/x/", "http://Ids.example.org:8000/x"),
        ("Https://[::1]", "https://[::1]"),
        ("postgresql://h/n", None),
    ):
        assert addresses(written) == ([address] if address else [])


def test_an_odd_address_is_refused(subtests):
    for wrong in (
        *(f"http://{host}" for host in ("a..b", "a" * 64, "\u00e4" * 64)),
        *("http://", "https:///x", "http://user:s3cret@host", "http://user:s3cret@host:99999", "http://host:99999"),
        *("http://user:s3/cr?et#@host:s3cret@host:99999", "http://host?token=s3cret", ["http://a", "sqlite:///x"]),
    ):
        with subtests.test(wrong=wrong):
            with pytest.raises(InvalidDatabase) as refused:
                Allocator(wrong)
            assert "s3cret" not in str(refused.value)
            assert "host" in str(refused.value) or "host" not in wrong, wrong


def test_a_token_that_others_may_overhear_is_warned_of_once(caplog):
    overheard = ["http://ids.example.org", "http://10.0.0.1:8000/x"]
    alone = ["https://10.0.0.1", "http://127.0.0.2:8000", "http://localhost", "http://[::1]:1"]
    Servers(alone, "secret", 1)
    Servers(overheard, None, 1)
    assert caplog.messages == []
    Servers(overheard + alone, "secret", 1)
    assert caplog.messages == [f"the token is sent unencrypted to {', '.join(overheard)}; use https://"]
