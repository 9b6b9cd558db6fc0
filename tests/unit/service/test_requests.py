"""What a query and a body may hold."""

import asyncio
import inspect
import json
import re
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from granian.server.embed import Server
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from allocator import errors
from allocator.errors import AllocatorError, InvalidCount, InvalidSetting, InvalidTag
from allocator.schemes.shared.residues import Residue
from allocator.schemes.tag import unknown
from allocator.schemes.token import VERBS, Token, digest_of
from allocator.service import schemas
from allocator.service.auth import Principal
from allocator.service.dispatch import refusal_of
from allocator.service.error_responses import HttpRefusal, body_of, headers_of, status_of
from allocator.service.hot_path import HotPath
from allocator.service.http_server import HttpServer
from allocator.service.served_ids import Source


def read(form: type[schemas.Form], value: Any) -> dict[str, Any]:
    try:
        return form.model_validate(value).given()
    except ValidationError as error:
        raise refusal_of(error) from None


def test_fields_are_read_as_what_they_are():
    for form, value, found in [
        (schemas.Count, {"count": "3"}, {"count": 3}),
        (schemas.Wanted, {"seen": "1.2.3", "exact": "true"}, {"seen": {Residue(1, 2): 3}, "exact": True}),
        (
            schemas.Settings,
            {"limit": "9223372036854775807", "failover_gap": "5"},
            {"limit": 2**63 - 1, "failover_gap": 5},
        ),
        (schemas.Settings, {"failover_gap": "auto"}, {"failover_gap": "auto"}),
        (schemas.Settings, {}, {}),
    ]:
        assert read(form, value) == found


RENEWED = {"now": 1, "seconds": 60, "number": 1, "holder": "0" * 32}


def test_what_cannot_be_is_refused_by_its_name(subtests):
    for form, value, kind, sentence in [
        (schemas.Count, {"count": "1001"}, InvalidCount, "^count must be 1 to 1000, got 1001$"),
        (schemas.Count, {"count": "9" * 5000}, InvalidCount, "^count: .* got '9{1,80}$"),
        (schemas.Count, {"count": "two"}, InvalidCount, "^count: .* got 'two'$"),
        (schemas.Wanted, {"size": "1000000000"}, InvalidCount, "^size: .* got '1000000000'$"),
        (schemas.Settings, {"failover_gap": "often"}, InvalidSetting, '^failover_gap must be "auto", "refuse" or a n'),
        (schemas.Settings, {"failover_gap": -1}, InvalidSetting, "^failover_gap must be 0 to [0-9]{19}, got -1$"),
        (schemas.Settings, {"step": "5"}, InvalidSetting, "^step: .* got '5'$"),
        (schemas.Settings, {"limit": " 5"}, InvalidSetting, "^limit must be a whole number .*, got ' 5'$"),
        (schemas.NumberWanted, {"now": 1, "seconds": 601}, InvalidSetting, "^seconds: "),
        (schemas.NumberWanted, {"now": 1, "seconds": 60, "host": "a\nb"}, InvalidSetting, "^host: "),
        (schemas.NumberRenewal, RENEWED | {"holder": "me"}, InvalidSetting, "^holder: "),
        *(
            (schemas.NumberRenewal, RENEWED | {"number": odd}, InvalidSetting, "^number: ")
            for odd in ("seven", "+7", "\u0663", 2**32, -1, True, 7.0)
        ),
        (schemas.Wanted, {"seen": "1"}, InvalidSetting, "seen must be offset.step.id"),
        (schemas.Pages, {"after": "a b"}, InvalidTag, "a tag is 1 to 64"),
        (schemas.Format, {"scheme": "c"}, InvalidSetting, "^scheme: .*'meteor'"),
        (schemas.Settings, {"step": 5, "stepp": 1}, InvalidSetting, "unknown parameter 'stepp'"),
        (schemas.NumberWanted, {"seconds": 20}, InvalidSetting, "now is missing"),
        (schemas.NumberWanted, {"seconds": 20, "now": 1, "format": "x"}, InvalidSetting, "format"),
        (schemas.Settings, [1], AllocatorError, "the body must be a JSON object"),
    ]:
        with subtests.test(sentence=sentence), pytest.raises(kind, match=sentence):
            read(form, value)


# -- which status an error has, and what of it may be told


ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, AllocatorError) and value is not AllocatorError
]
STATUSES = {
    **{f"Invalid{what}": 400 for what in ("Argument", "Tag", "Count", "Setting", "Database", "Id")},
    "AccessDenied": 403,
    "UnknownTag": 404,
    "TagExists": 409,
    "LeaseLost": 409,
    "Exhausted": 410,
    "TooManyRequests": 429,
}
SECRET = "postgresql://root:hunter2@10.0.0.5/ids: SELECT * FROM allocator_segment"


def test_every_error_has_one_status_and_a_trouble_of_ours_says_when_to_ask_again():
    for kind in ERRORS:
        status = STATUSES.get(kind.__name__, 503)
        assert status_of(kind("x")) == status, kind
        assert status != 503 or int(headers_of(kind("x"))["retry-after"]) >= 1, kind


UNTOLD = "the service cannot do this now; the operator of the service finds"
TOLD = [
    (
        unknown("ordr", ["order", "secret"]),
        "tag 'ordr' does not exist; create it by PUT, or with: allocator tags create TAG",
    ),
    (errors.InvalidTag("a tag has no '/', got 'http://x'"), "a tag has no '/', got '(a URL)'"),
    (errors.InvalidSetting(f"not in {SECRET}"), "not in (a URL) SELECT * FROM allocator_segment"),
    (HttpRefusal(400, "If-Match must be *, got 'a://b'"), "If-Match must be *, got 'a://b'"),
    (errors.MaxValueWentBack(SECRET), UNTOLD),
]


def test_nothing_of_the_database_is_told_no_other_tag_and_no_url_that_the_service_would_be_blamed_for(subtests):
    for error, detail in TOLD:
        with subtests.test(detail=detail):
            assert json.loads(body_of(error, ""))["detail"].startswith(detail), error
    for name in ("DatabaseUnavailable", "DatabaseRefused", "SchemaOutOfDate", "SchemaDamaged", "ShardMisconfigured"):
        told = body_of(getattr(errors, name)(SECRET), "r")

        assert b"hunter2" not in told, name
        assert b"SELECT" not in told, name
        assert json.loads(told)["error"] == name, name
        assert len(json.loads(told)["detail"]) > 20, name


# -- what stands before the framework


async def given(count: int) -> list[int]:
    return [1] * count


@pytest.mark.parametrize(("path", "query"), [("/v1/meteor", b"count=1000"), ("/v1/inspect/1", b"")])
def test_a_thousand_requests_of_one_token_have_few_answers_before_the_next_id_of_another(path, query):
    """Each takes the time of many ids, and all came before it: a batch of the hot path, and what the framework does."""
    answered: list[str] = []

    async def framework(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    tokens = Mock()
    principals = {}
    for name in ("flood", "victim"):
        principal = Principal(Token(1, name, digest_of(name.encode()), VERBS, ("*",), datetime.now(UTC)))
        principal.hot_sources["/v1/meteor"] = Source("meteor", given, lambda: 1)
        principals[name.encode()] = principal
    tokens.find_in_memory = lambda headers: principals[headers[b"authorization"]]
    application = HotPath(framework, tokens, Mock(), Mock())

    async def ask(name: str, path: str, query: bytes) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answered.append(name)

        headers = [(b"host", b"ids"), (b"authorization", name.encode())]
        scope = {"type": "http", "method": "POST", "path": path, "query_string": query, "headers": headers}
        await application({**scope, "http_version": "1.1"}, Mock(), send)

    async def run() -> None:
        flood = [asyncio.create_task(ask("flood", path, query)) for _ in range(1000)]
        await asyncio.create_task(ask("victim", "/v1/meteor", b""))
        assert len(answered) < 5
        await asyncio.gather(*flood)

    asyncio.run(run())
    assert answered.count("flood") == 1000


# -- what the service asks of FastAPI, Starlette and granian beyond what their versions promise


ROOT = Path(__file__).parents[3]


def test_a_framework_without_a_promise_of_its_own_has_an_upper_bound():
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
    bounded = {re.split("[^a-z]", one)[0] for one in extra if ",<" in one}
    assert bounded >= {"fastapi", "granian", "pydantic", "starlette"}


def test_no_private_or_undocumented_attribute_of_a_route_is_read():
    text = "\n".join(path.read_text() for path in (ROOT / "allocator" / "service").rglob("*.py"))
    assert re.findall(r"\.(?:dependant|body_field|response_field|secure_cloned_response_field|unique_id)\b", text) == []


def test_granian_calls_what_our_server_overrides():
    """Private methods of its embedded server: under another name it would open a socket of its own."""
    ours = {name for name in vars(HttpServer) if re.match("_[a-z]", name)}
    assert ours
    assert [name for name in ours if not hasattr(Server, name)] == []
