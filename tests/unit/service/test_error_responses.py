"""Which status an error has, and what of it may be told."""

from __future__ import annotations

import inspect
import json

from allocator import errors
from allocator.errors import AllocatorError
from allocator.schemes.tag import unknown
from allocator.service.error_responses import (
    HttpRefusal,
    Unauthorized,
    body_of,
    detail_of,
    headers_of,
    status_of,
)

ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, AllocatorError) and value is not AllocatorError
]
STATUSES = {
    "InvalidArgument": 400,
    "InvalidTag": 400,
    "InvalidCount": 400,
    "InvalidSetting": 400,
    "InvalidDatabase": 400,
    "InvalidId": 400,
    "AccessDenied": 403,
    "UnknownTag": 404,
    "TagExists": 409,
    "LeaseLost": 409,
    "Exhausted": 410,
    "TooManyRequests": 429,
}
SECRET = "postgresql://root:hunter2@10.0.0.5/ids: SELECT * FROM allocator_segment"


def test_no_tag_is_told_but_the_one_that_was_asked_for():
    assert detail_of(unknown("ordr", ["order", "secret"])) == (
        "tag 'ordr' does not exist; create it by PUT, or with: allocator tags create TAG"
    )


def test_every_error_has_one_status():
    for kind in ERRORS:
        assert status_of(kind("x")) == STATUSES.get(kind.__name__, 503), kind


def test_a_trouble_of_ours_says_when_to_ask_again():
    for kind in [kind for kind in ERRORS if kind.__name__ not in STATUSES]:
        assert int(headers_of(kind("x"))["retry-after"]) >= 1, kind


def test_nothing_of_the_database_is_told():
    for name in [
        "DatabaseUnavailable",
        "DatabaseRefused",
        "SchemaOutOfDate",
        "SchemaDamaged",
        "ShardMisconfigured",
        "FleetGrowing",
    ]:
        told = body_of(getattr(errors, name)(SECRET), "r")

        assert b"hunter2" not in told, name
        assert b"SELECT" not in told, name
        assert json.loads(told)["error"] == name, name
        assert len(json.loads(told)["detail"]) > 20, name


def test_a_url_in_a_callers_error_is_left_out_and_the_service_not_blamed():
    for error, detail in [
        (errors.InvalidTag("a tag has no '/', got 'http://x'"), "a tag has no '/', got '(a URL)'"),
        (errors.InvalidSetting(f"not in {SECRET}"), "not in (a URL) SELECT * FROM allocator_segment"),
        (HttpRefusal(400, "If-Match must be *, got 'a://b'"), "If-Match must be *, got 'a://b'"),
        (errors.MaxValueWentBack(SECRET), "the service cannot do this now; the operator of the service finds"),
    ]:
        assert json.loads(body_of(error, ""))["detail"].startswith(detail), error


def test_a_problem_is_one_sentence_with_its_number():
    told = json.loads(body_of(errors.InvalidCount("count must be 1 to 1000, got 0"), "r-1"))

    assert told == {
        "type": "urn:allocator:InvalidCount",
        "title": "Bad Request",
        "status": 400,
        "error": "InvalidCount",
        "detail": "count must be 1 to 1000, got 0",
        "request": "r-1",
    }


def test_refusals_of_form_bring_their_headers():
    refusal = HttpRefusal(405, "no", Allow="GET")

    assert headers_of(refusal) == {"Allow": "GET"}
    assert headers_of(Unauthorized("x")) == {"www-authenticate": "Bearer"}
    assert headers_of(Unauthorized("x", was_sent=True)) == {"www-authenticate": 'Bearer error="invalid_token"'}
    assert json.loads(body_of(Unauthorized("x"), ""))["error"] == "AccessDenied"
