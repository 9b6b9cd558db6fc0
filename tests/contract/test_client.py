"""The service as a source of ids for another process: what is particular to it, beside `place` of the other tests."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic

import pytest
from support.distinct import distinct
from support.processes.patience import until
from support.servers.throwaway import free_port
from support.service.hostile_server import Hostile, saying
from support.service.served import Served

import allocator.remote.http as client
from allocator import Allocator, SnowflakeSettings, Tag
from allocator.errors import (
    AccessDenied,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidSetting,
    MaxValueWentBack,
    SchemaDamaged,
    TooManyRequests,
    UnknownTag,
)
from allocator.remote.client import ServiceBackend
from allocator.remote.http import Servers
from allocator.schemes.shared.residues import Residue
from allocator.schemes.worker_number_lease import NumberClaim


@pytest.fixture
def made() -> Iterator[Hostile]:
    """A server that answers what it is told to."""
    with Hostile() as found:
        yield found


def nowhere() -> str:
    """An address at which nobody listens."""
    return f"http://127.0.0.1:{free_port()}"


def test_a_server_in_trouble_is_left_for_another_which_is_asked_first_from_then_on(face, made, shared_service, tag):
    names = ("DatabaseUnavailable", "SchemaOutOfDate", "DatabaseRefused", "AllocatorClosed")
    troubles = [*((503, name) for name in names), (429, "TooManyRequests"), (429, "?"), (502, "?"), (500, "?")]
    for number, (status, name) in enumerate(troubles):
        made.says(b"<html>", status) if name == "?" else made.refuses(status, name)
        ids = face([nowhere(), made.address, shared_service(), nowhere()])
        drawn = [ids.reserve(tag, 1)[0] for _ in range(3)]
        assert drawn == [3 * number + 1, 3 * number + 2, 3 * number + 3], name
        assert ids.ticket(tag) > 0
    assert len(made.requests) == len(troubles)


def test_ids_come_from_memory_and_go_on_while_the_service_is_away(face, tmp_path, tag):
    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        ids = face(service.address, timeout=5, step=100, max_step=100)
        drawn = [ids.next_id(tag), *ids.next_ids(tag, 60)]  # beyond low water
        assert until(lambda: ids.tags.get(tag).max_value >= 200)
    drawn += [ids.next_id(tag) for _ in range(120)]
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        ids.next_ids(tag, 200)

    assert distinct(drawn) == 181


def test_an_error_of_the_service_is_the_callers(face, made, tag):
    for status, name, error in (
        (404, "UnknownTag", UnknownTag),
        (410, "Exhausted", Exhausted),
        (403, "AccessDenied", AccessDenied),
        (401, "AccessDenied", AccessDenied),
        (429, "TooManyRequests", TooManyRequests),
        (503, "DatabaseUnavailable", DatabaseUnavailable),
        (503, "SchemaDamaged", DatabaseUnavailable),
        (503, "MaxValueWentBack", MaxValueWentBack),
        (404, "Refused", DatabaseRefused),
        (503, "Refused", DatabaseUnavailable),  # for now: too many requests wait
    ):
        made.refuses(status, name, f"the reason of {name}")
        with pytest.raises(error, match=f"the reason of {name}|tag {tag!r} does not exist"):
            face(made.address, timeout=2, create_missing=False).reserve(tag, 5)


def test_a_server_that_hangs_costs_no_more_than_the_timeout(face, made, tag):
    late = threading.Event()
    made.answers = lambda asked: late.wait(60) and []
    ids = face(made.address, timeout=0.5)
    began = time.monotonic()
    for call in (lambda: ids.next_id(tag), lambda: ids.ticket(tag), lambda: ids.reserve(tag, 1), ids.meteor):
        with pytest.raises(DatabaseUnavailable):
            call()

    assert time.monotonic() - began < 15
    late.set()


def test_a_start_that_was_said_goes_to_one_server_alone(face, shared_service, tag):
    """The next one may read its databases after a failover that forgot ids above the start."""
    for name in ("create", "set"):
        call = getattr(face([nowhere(), shared_service()]).tags, name)
        with pytest.raises(DatabaseUnavailable, match="did not answer"):
            call(tag, start_after=500)
        assert call(tag, start_after=500).max_value == 500


def test_a_token_is_sent_and_a_wrong_one_said(face, guarded, tag):
    address = guarded.service.address
    ids = face(address, token=guarded.make(f"app-{tag}", tags=(tag, "@meteor", "@snowflake")))
    assert ids.next_id(tag) == 1  # made by the service, since this token may not administer
    assert ids.meteor() != ids.snowflake()
    assert ids.tags.get(tag) == Tag(tag, 10)
    with pytest.raises(AccessDenied, match="this token may not draw 'other'"):
        ids.next_id("other")
    with pytest.raises(AccessDenied, match="may not administer"):
        ids.tags.set(tag, step=5)
    for wrong in (None, "allocator_wrong"):
        with pytest.raises(AccessDenied, match="this request needs a valid token"):
            face(address, token=wrong).next_id(tag)


def test_parent_and_child_that_ask_at_once_never_read_each_others_answers(shared_service, tag):
    """Two on one connection would get the same segments, or halves of them."""
    with Allocator(shared_service()) as ids:
        drawn = [ids.reserve(tag, 5)]  # a connection is open now
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(writing, " ".join(str(ids.reserve(tag, 5)[0]) for _ in range(150)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        drawn += [ids.reserve(tag, 5) for _ in range(150)]
        with os.fdopen(reading) as pipe:
            theirs = list(map(int, pipe.read().split()))
        os.waitpid(child, 0)
    ours = [segment[0] for segment in drawn]

    assert len(theirs) == 150
    assert distinct([*ours, *theirs]) == 301


def test_settings_that_belong_to_the_other_side_are_refused(face):
    for settings in ({"token": "a\nb"}, {"token": 5}):
        with pytest.raises(InvalidSetting):
            face("http://127.0.0.1:1", **settings)
    with pytest.raises(InvalidSetting, match="token is only for a service"):
        face("sqlite:///x.db", token="x")


def test_a_format_that_is_not_the_services_own_is_refused(shared_service):
    """The first lease of a database chooses the format of all."""
    settings = SnowflakeSettings(epoch=0)
    said = "for the format 1/41/5/5/12 1288834974657, bits=10 and seconds=20"
    with Allocator(shared_service(), snowflake=settings) as ids, pytest.raises(InvalidSetting, match=said):
        ids.snowflake()
    with Allocator(shared_service()) as ids:
        assert ids.snowflake() > 0


# -- the client before servers whose answer is wrong, or one that nobody asked for


TIMEOUT = 4.0
SETTINGS = {"tag": "order", "max_value": "0", "step": 50, "max_step": 50, "limit": "1000000"}
TICKET = {"type": "order", "id": "7"}
SNOWFLAKE = NumberClaim("@snowflake", 10, 20_000, 0, "", format="1/41/5/5/12 1288834974657")
OF_AN_ANSWER = (DatabaseRefused, DatabaseUnavailable, SchemaDamaged)


def asking(*addresses: str) -> ServiceBackend:
    return ServiceBackend(Servers(list(addresses), None, TIMEOUT))


def always(body: object, **more: str) -> Hostile:
    return Hostile(lambda asked: [saying(body, **more)])


# -- connections that are kept


def tickets(service: ServiceBackend, count: int) -> list[int]:
    return [service.ticket("order", monotonic() + TIMEOUT) for _ in range(count)]


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


def test_a_request_that_met_the_end_of_a_kept_connection_is_sent_once_more_unless_its_answer_had_begun():
    for begun, requests in ((b"", 3), (b"HTTP/1.1 2", 2), (saying(TICKET).replace(b"Length: ", b"Length: 1"), 2)):

        def answers(asked: str, begun: bytes = begun) -> Iterator[bytes]:
            if len(hostile.requests) > 1:
                yield begun
                raise ConnectionError
            yield saying(TICKET)

        with Hostile(answers) as hostile:
            service = asking(hostile.address)
            tickets(service, 1)
            with pytest.raises(DatabaseUnavailable, match="did not answer"):
                tickets(service, 1)
            assert len(hostile.requests) == requests, begun


# -- other servers


def test_a_redirect_is_not_followed():
    with always(TICKET) as other:
        hostile = always(b"", status="307 x", head=f"Location: {other.address}/v1/tickets/order\r\n")
        with hostile, pytest.raises(DatabaseUnavailable, match="answered 307, not as allocator serve does"):
            tickets(asking(hostile.address), 1)
        assert other.requests == []


SECONDS = [
    ("429 x", "TooManyRequests", "7", 7.0),
    ("429 x", "", "7", 7.0),  # a proxy, whose answer is no JSON
    ("429 x", "", "Wed, 21 Oct 2026 07:28:00 GMT", 1.0),
    ("503 x", "DatabaseUnavailable", "3", 3.0),
    ("503 x", "", "86400", client.MAX_RETRY_AFTER),
]


def test_an_error_has_the_seconds_of_retry_after(subtests):
    for status, named, header, seconds in SECONDS:
        with subtests.test(header=header, named=named):
            body = {"error": named, "detail": "so it is"} if named else b"busy"
            hostile = always(body, status=status, head=f"Retry-After: {header}\r\n")
            with hostile, pytest.raises(DatabaseUnavailable) as refused:
                tickets(asking(hostile.address), 1)
            assert refused.value.retry_after == seconds, (status, named, header)


# -- wrong answers


BLOCK = {"tag": "order", "start": "1", "stop": "51", "step": "1"}
LEASE = {"space": "@snowflake", "number": 1024, "holder": "0" * 32, "until": 0}


def claimed(service: ServiceBackend) -> range:
    return service.claim_segment("order", 50, {}, exact=True)


NOT_ASKED_FOR: list[tuple[object, Callable[[ServiceBackend], object], str]] = [
    *((BLOCK | {"stop": stop}, claimed, "not a response of") for stop in ("1000", "40", str(2**62))),
    (BLOCK | {"stop": "500000", "step": "10000"}, claimed, "not a response of"),
    *((answer, claimed, "") for answer in ({}, {"tag": "order"}, [], "ids", b"no json", b"[" * 100_000)),
    (BLOCK, lambda service: service.claim_segment("order", 50, {Residue(): 1}), ""),
    (BLOCK | {"step": "2"}, lambda service: service.claim_segment("order", 50, {Residue(): 1}), ""),
    (SETTINGS | {"tag": "other"}, lambda service: service.read_tag("order"), "is for tag 'other', not for 'order'"),
    (LEASE, lambda service: service.lease_number(SNOWFLAKE), "number must be 0 to 1023"),
]
"""The fields are judged by unit/remote/test_client."""


def test_what_was_not_asked_for_is_refused_and_the_next_server_asked(subtests):
    for answer, call, said in NOT_ASKED_FOR:
        with subtests.test(answer=str(answer)[:50]):
            with always(answer) as hostile, pytest.raises(OF_AN_ANSWER) as refused:
                pytest.fail(f"{call(asking(hostile.address))} of {answer!r}")
            assert said in str(refused.value)
            assert said == "" or hostile.address in str(refused.value)
    with always(NOT_ASKED_FOR[0][0]) as hostile, always(BLOCK) as good:
        assert claimed(asking(hostile.address, good.address)) == range(1, 51)


EVIL = "gone\x1b[2J\r\n2026-01-01 INFO all is well\x00\u202e" + "x" * 5000


ANSWERS = (
    saying({"error": "UnknownTag", "detail": EVIL}, status="404 Not Found"),
    saying({"error": "DatabaseUnavailable", "detail": EVIL}, status="503 x"),
    saying({"error": "UnknownTag", "detail": [EVIL]}, status="404 x"),
    b"\x1b[2J is no status\r\n\r\n",
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
