"""The client before servers whose answer is too large, wrong, or one that nobody asked for."""

import logging
from collections.abc import Iterator
from itertools import repeat
from threading import Event
from time import monotonic

import pytest
from support.service.hostile_server import FLOODS, Hostile, saying

import allocator.remote.http as client
from allocator import Allocator, Tag
from allocator.errors import DatabaseRefused, DatabaseUnavailable, SchemaDamaged, UnknownTag
from allocator.remote.client import ServiceBackend
from allocator.remote.http import Servers
from allocator.schemes.shared.residues import Residue

TIMEOUT = 4.0
SETTINGS = {"tag": "order", "max_value": "0", "step": 50, "max_step": 50, "limit": "1000000"}
TICKET = {"type": "order", "id": "7"}


def asking(*addresses: str, timeout: float = TIMEOUT) -> ServiceBackend:
    return ServiceBackend(Servers(list(addresses), None, timeout))


def always(body: object, **more: str) -> Hostile:
    return Hostile(lambda asked: [saying(body, **more)])


@pytest.mark.parametrize("name", FLOODS)
def test_an_answer_without_end_fills_no_memory(name):
    before, piece = FLOODS[name]

    def answers(asked: str) -> Iterator[bytes]:
        yield before
        yield from repeat(piece, 12_000_000 // len(piece))

    with Hostile(answers) as hostile:
        with pytest.raises(
            DatabaseUnavailable, match=r"larger than 1000000 bytes|LineTooLong|more than 100 headers|IncompleteRead"
        ):
            asking(hostile.address, timeout=20).read_tag("order")
        assert hostile.hung_up.wait(5)


# -- connections that are kept


def tickets(service: ServiceBackend, count: int) -> list[int]:
    return [service.ticket("order", monotonic() + TIMEOUT) for _ in range(count)]


def test_100_continue_is_skipped_and_the_answer_of_each_request_is_its_own():
    def answers(asked: str) -> Iterator[bytes]:
        yield b"HTTP/1.1 100 Continue\r\n\r\n" + saying(TICKET | {"id": str(len(hostile.requests))})

    with Hostile(answers) as hostile:
        assert tickets(asking(hostile.address), 3) == [1, 2, 3]
        assert hostile.connections == 1


def test_an_answer_that_nobody_asked_for_is_given_to_no_request():
    read, sent = Event(), Event()

    def answers(asked: str) -> Iterator[bytes]:
        yield saying(TICKET | {"id": str(len(hostile.requests))})
        if len(hostile.requests) == 1:
            read.wait(5)
            yield saying(TICKET | {"id": "99"})
            sent.set()

    with Hostile(answers) as hostile:
        service = asking(hostile.address)
        assert tickets(service, 1) == [1]
        read.set()
        assert sent.wait(5)
        assert tickets(service, 1) == [2]


def test_a_connection_is_kept_until_shortly_before_its_server_closes_it(monkeypatch):
    assert client.MAX_IDLE < 15
    with always(TICKET) as server:
        service = asking(server.address)
        tickets(service, 3)
        assert server.connections == 1
        monkeypatch.setattr(client, "MAX_IDLE", 0.0)
        tickets(service, 2)
        assert server.connections == 3


@pytest.mark.parametrize(
    ("begun", "requests"),
    [
        (b"", 3),
        (b"HTTP/1.1 2", 2),
        (saying(TICKET).replace(b"Length: ", b"Length: 1"), 2),
    ],
)
def test_a_request_that_met_the_end_of_a_kept_connection_is_sent_once_more_unless_its_answer_had_begun(begun, requests):
    def answers(asked: str) -> Iterator[bytes]:
        if len(hostile.requests) > 1:
            yield begun
            raise ConnectionError
        yield saying(TICKET)

    with Hostile(answers) as hostile:
        service = asking(hostile.address)
        tickets(service, 1)
        with pytest.raises(DatabaseUnavailable, match="did not answer"):
            tickets(service, 1)
        assert len(hostile.requests) == requests


# -- other servers


def test_a_redirect_is_not_followed():
    with always(TICKET) as other:
        for status in (301, 302, 303, 307, 308):
            answer = saying(b"", status=f"{status} x", head=f"Location: {other.address}/v1/tickets/order\r\n")
            said = f"answered {status}, not as allocator serve does"
            with (
                Hostile(lambda asked, answer=answer: [answer]) as hostile,
                pytest.raises(DatabaseUnavailable, match=said),
            ):
                tickets(asking(hostile.address), 1)
        assert other.requests == []


@pytest.mark.parametrize(
    ("status", "named", "header", "seconds"),
    [
        ("429 x", "TooManyRequests", "7", 7.0),
        ("429 x", "", "7", 7.0),  # a proxy, whose answer is no JSON
        ("429 x", "", "Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
        ("503 x", "DatabaseUnavailable", "3", 3.0),
        ("503 x", "", "86400", client.MAX_RETRY_AFTER),
    ],
)
def test_an_error_has_the_seconds_of_retry_after(status, named, header, seconds):
    body = {"error": named, "detail": "so it is"} if named else b"busy"
    answer = saying(body, status=status, head=f"Retry-After: {header}\r\n")
    with Hostile(lambda asked: [answer]) as hostile, pytest.raises(DatabaseUnavailable) as refused:
        tickets(asking(hostile.address), 1)

    assert refused.value.seconds == seconds


# -- wrong answers


def test_a_segment_that_was_not_asked_for_is_refused_and_the_next_server_asked():
    for stop, step in ((1000, 1), (40, 1), (500_000, 10_000), (2**62, 1)):
        answer = {"tag": "order", "start": "1", "stop": str(stop), "step": str(step)}
        with always(answer) as hostile, always(answer | {"stop": "51", "step": "1"}) as good:
            assert asking(hostile.address, good.address).claim_segment("order", 50, {}, exact=True) == range(1, 51)
            with pytest.raises(DatabaseRefused, match=rf"{hostile.address}: not a response of allocator serve"):
                asking(hostile.address).claim_segment("order", 50, {}, exact=True)


def test_a_segment_below_what_was_seen_stops_the_tag():
    with always({"tag": "order", "start": "1", "stop": "51", "step": "1"}) as hostile, pytest.raises(SchemaDamaged):
        asking(hostile.address).claim_segment("order", 50, {Residue(): 50})


def test_the_settings_of_another_tag_are_refused():
    with always(SETTINGS | {"tag": "other"}) as hostile, always(SETTINGS) as good:
        assert asking(hostile.address, good.address).read_tag("order") == Tag("order", 0, 50, 50, 1_000_000)
        with pytest.raises(DatabaseRefused, match="the answer is for tag 'other', not for 'order'"):
            asking(hostile.address).read_tag("order")


def test_pages_of_tags_that_come_to_no_end_are_refused():
    first, empty = saying({"tags": [SETTINGS], "next": "order"}), saying({"tags": [], "next": "order"})
    with (
        Hostile(lambda asked: [empty if "after" in asked else first]) as hostile,
        Allocator(hostile.address, timeout=15) as ids,
        pytest.raises(DatabaseRefused, match="the tags after 'order' are not sorted"),
    ):
        ids.tags.list()


def test_a_tag_that_no_client_can_read_hides_no_other(caplog):
    odd = [SETTINGS | {"tag": "odd", "failover_gap": "-7"}, SETTINGS | {"tag": "odder", "limit": "0"}]
    with always({"tags": [*odd, SETTINGS]}) as server, Allocator(server.address) as ids:
        assert [tag.name for tag in ids.tags.list()] == ["order"]
    assert caplog.text.count("which is left out") == 2


EVIL = "gone\x1b[2J\r\n2026-01-01 INFO all is well\x00\u202e" + "x" * 5000


ANSWERS = (
    saying({"error": "UnknownTag", "detail": EVIL}, status="404 Not Found"),
    saying({"error": "DatabaseUnavailable", "detail": EVIL}, status="503 x"),
    saying({"error": "Refused", "detail": EVIL}, status="400 x"),
    saying({"error": "UnknownTag", "detail": [EVIL]}, status="404 x"),
    b"\x1b[2J is no status\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\x1b[2J\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: \x1b[2J\r\n\r\n",
    b"HTTP/1.1 200 \x1b[2J\r\nX\x1b[2J\r\n : x\r\nContent-Length: 2\r\n\r\n{}",
    saying({"tag": "\x1b[2J"}),
    saying({**SETTINGS, "step": "\x1b[2J"}),
)


def test_what_a_server_says_reaches_messages_and_logs_without_control_characters(caplog):
    caplog.set_level(logging.DEBUG)
    for answer in ANSWERS:
        with (
            Hostile(lambda asked, answer=answer: [answer]) as hostile,
            Allocator(hostile.address, timeout=0.5) as ids,
            pytest.raises((DatabaseRefused, DatabaseUnavailable, UnknownTag)) as refused,
        ):
            ids.next_id("order")

        assert str(refused.value).isprintable(), answer
        assert len(str(refused.value)) < 4000, answer
    assert caplog.text.replace("\n", "").isprintable()
    assert "\n2026-01-01" not in caplog.text
