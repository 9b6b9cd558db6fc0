"""The service as a source of ids for another process: what is particular to it, beside `place` of the other tests."""

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextvars import ContextVar

import pytest
from support.distinct import distinct
from support.kit import backend_of
from support.processes.patience import until
from support.service.hostile_server import Hostile
from support.service.served import Guarded, Served

import allocator.errors
from allocator import Allocator, Layout, SnowflakeSettings, Tag
from allocator.errors import (
    AccessDenied,
    DatabaseRefused,
    DatabaseUnavailable,
    Exhausted,
    InvalidDatabase,
    InvalidSetting,
    MaxValueWentBack,
    SchemaDamaged,
    TooManyRequests,
    UnknownTag,
)
from allocator.schemes.worker_number_lease import NumberClaim


@pytest.fixture
def made() -> Iterator[Hostile]:
    """A server that answers what it is told to."""
    with Hostile() as found:
        yield found


def nowhere() -> str:
    """An address at which nobody listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{found.getsockname()[1]}"


def test_ids_come_from_memory_and_the_service_is_asked_once_a_segment(face, shared_service, tag):
    ids = face(shared_service(), step=1000)
    first = ids.next_id(tag)
    claim = backend_of(ids)
    asked: list[str] = []
    request = claim.servers.request
    claim.servers.request = lambda method, path, *args, **more: (
        asked.append(path) or request(method, path, *args, **more)
    )
    drawn = [ids.next_id(tag) for _ in range(500)]

    assert drawn == list(range(first + 1, first + 501))
    assert len(asked) <= 1


def test_two_clients_and_the_service_itself_never_share_an_id(face, shared_service, tag):
    one, two = face(shared_service(), step=10, max_step=10), face(shared_service())
    drawn = [number for _ in range(100) for number in (one.next_id(tag), two.next_id(tag), *one.next_ids(tag, 5))]

    assert distinct(drawn)


def test_another_server_is_asked_when_one_is_down(face, shared_service, tag):
    ids = face([nowhere(), shared_service(), nowhere()], timeout=2)
    drawn = [ids.next_id(tag) for _ in range(3)]

    assert drawn == [1, 2, 3]
    assert ids.ticket(tag) > 0


def test_the_server_that_answered_is_asked_first_from_then_on(made, shared_service, tag):
    made.refuses(503, "DatabaseUnavailable")
    with Allocator([made.address, shared_service()]) as ids:
        for _ in range(5):
            ids.reserve(tag, 1)

    assert len(made.requests) == 1


def test_a_trouble_of_one_server_is_not_that_of_another(made, shared_service, tag):
    names = ("DatabaseUnavailable", "SchemaOutOfDate", "DatabaseRefused", "AllocatorClosed")
    troubles = [*((503, name) for name in names), (429, "TooManyRequests"), (429, "?"), (502, "?"), (500, "?")]
    for start, (status, name) in enumerate(troubles, 1):
        made.says(b"<html>", status) if name == "?" else made.refuses(status, name)
        with Allocator([made.address, shared_service()]) as ids:
            assert ids.reserve(tag, 1)[0] == start, name
    assert len(made.requests) == len(troubles)


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
    ):
        made.refuses(status, name, f"the reason of {name}")
        with pytest.raises(error, match=f"the reason of {name}|tag {tag!r} does not exist"):
            face(made.address, timeout=2, create_missing=False).reserve(tag, 5)


def test_every_error_that_has_a_name_comes_back_as_itself():
    """Those that a service can meet; the others are troubles of a server, and the same as one that is away."""
    from allocator.remote.http import FAILOVER_ERRORS
    from allocator.service.error_responses import PROBLEMS, name_of

    for kind, _, _ in PROBLEMS[:-1]:
        assert getattr(allocator.errors, name_of(kind("x"))) in {*kind.__mro__}
    assert DatabaseUnavailable not in FAILOVER_ERRORS


def test_an_answer_that_is_no_segment_gives_no_ids(made, tag):
    """The last one is larger than what was asked for; unit/remote/test_wire has the other fields."""
    for answer in ({}, {"start": "5", "stop": "1", "step": "1"}, [], "ids", b"no json", b"[" * 100_000, LARGER):
        made.says({"tag": tag, "max_value": "0", "step": 50, "max_step": 50, "limit": "1000"})
        with Allocator(made.address, timeout=3) as ids:
            ids.tags.get(tag)
            made.says({"tag": tag} | answer if isinstance(answer, dict) else answer)
            with pytest.raises((DatabaseRefused, DatabaseUnavailable, SchemaDamaged)):
                pytest.fail(f"{ids.reserve(tag, 50)} of {answer!r}")


LARGER = {"start": "1", "stop": "101", "step": "1"}


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


def test_ids_go_on_from_memory_while_the_service_is_away(tmp_path, tag):
    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        ids = Allocator(service.address, timeout=5, step=100, max_step=100)
        first = ids.next_id(tag)
        ids.next_ids(tag, 60)  # beyond low water: the next segment is claimed
        assert until(lambda: ids.tags.get(tag).max_value >= 200)
    drawn = [ids.next_id(tag) for _ in range(120)]
    with pytest.raises(DatabaseUnavailable, match="did not answer"):
        ids.next_ids(tag, 200)
    ids.close()

    assert distinct([first, *drawn]) == 121


def test_a_token_is_sent_and_a_wrong_one_said(face, tmp_path, tag):
    with Guarded(str(tmp_path)) as guarded:
        service = guarded.service
        ids = face(service.address, token=guarded.make("app", tags=(tag, "@meteor", "@snowflake")))
        assert ids.next_id(tag) == 1  # made by the service, since this token may not administer
        assert ids.meteor() != ids.snowflake()
        assert ids.tags.get(tag) == Tag(tag, 10)
        with pytest.raises(AccessDenied, match="this token may not draw 'other'"):
            ids.next_id("other")
        with pytest.raises(AccessDenied, match="may not administer"):
            ids.tags.set(tag, step=5)
        for wrong in (None, "allocator_wrong"):
            with pytest.raises(AccessDenied, match="this request needs a valid token"):
                face(service.address, token=wrong).next_id(tag)


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


def test_an_odd_address_is_refused(face):
    for wrong in (
        "http://",
        "https:///x",
        "http://user:s3cret@host",
        "http://user:s3cret@host:99999",
        "http://user:s3/cr?et#@host:s3cret@host:99999",
        "http://host?token=s3cret",
        "http://host:99999",
        ["http://a", "sqlite:///x"],
    ):
        with pytest.raises(InvalidDatabase) as refused:
            face(wrong)
        assert "s3cret" not in str(refused.value)
        assert "host" in str(refused.value) or "host" not in wrong, wrong


def test_settings_that_belong_to_the_other_side_are_refused(face):
    for settings in ({"fleet": "main"}, {"token": "a\nb"}, {"token": 5}):
        with pytest.raises(InvalidSetting):
            face("http://127.0.0.1:1", **settings)
    for settings in ({"token": "x"}, {"headers": dict}):
        with pytest.raises(InvalidSetting, match="token and headers are only for a service"):
            face("sqlite:///x.db", **settings)


caller: ContextVar[str] = ContextVar("caller")


def test_headers_are_asked_for_with_each_request_in_the_context_of_the_call(made, face):
    ids = face(made.address, token="secret", headers=lambda: {"traceparent": caller.get(), "Authorization": "other"})
    for number in ("7", "8"):
        caller.set(f"00-{number}")
        made.says({"type": "order", "id": number})
        assert ids.ticket("order") == int(number)

    ours = ("authorization", "traceparent")
    sent = [sorted(pair for pair in head if pair[0] in ours) for head in made.heads]
    assert sent == [[("authorization", "Bearer secret"), ("traceparent", f"00-{number}")] for number in "78"]


def test_headers_that_cannot_be_sent_are_refused_in_a_sentence(made, face):
    for wrong in (lambda: None, lambda: 1 // 0, lambda: {"x": "y\r\nAuthorization: other"}, lambda: {"x:y": "z"}):
        with pytest.raises(InvalidSetting, match="headers"):
            face(made.address, headers=wrong).ticket("order")

    assert made.requests == []


def test_a_format_that_is_not_the_services_own_is_refused(shared_service):
    """The first lease of a database chooses the format of all."""
    other = Layout(sign=1, timestamp=41, datacenter=2, worker=8, sequence=12)
    said = "for the format 1/41/5/5/12 1288834974657"
    for settings in ({"layout": other}, {"epoch": 0}, {"lease": 30.0}):
        ids = Allocator(shared_service(), snowflake=SnowflakeSettings(**settings))
        with ids, pytest.raises(InvalidSetting, match=f"{said}, bits=10 and seconds=20"):
            ids.snowflake()
    with Allocator(shared_service()) as ids:
        claim = NumberClaim("other", 10, 60_000, int(time.time() * 1000), "", format="1/41/5/5/12 0")
        with pytest.raises(InvalidSetting, match="no other space has a format"):
            backend_of(ids).lease_number(claim)
        assert ids.snowflake() > 0


def test_a_lease_of_a_worker_that_cannot_be_is_refused(made):
    made.says({"space": "@snowflake", "number": 1024, "holder": "0" * 32, "until": 0})
    with Allocator(made.address, timeout=5) as ids, pytest.raises(DatabaseRefused, match="number must be 0 to 1023"):
        ids.snowflake()
