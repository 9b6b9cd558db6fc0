"""Who may ask the service for what."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import NullPool, create_engine, text
from starlette.routing import Route
from support.kit import now_ms, run
from support.processes.patience import until
from support.servers.administrator import administrator
from support.service.served import Guarded, Served, of_an_operator
from support.transcripts import wrong_answers

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import InvalidSetting, UnknownTag
from allocator.schemes.token import PREFIX
from allocator.service.app import application
from allocator.service.dispatch import GuardedRoute
from allocator.service.settings import COMPATIBLE, ServeSettings
from allocator.service.token_administration import Tokens


@pytest.fixture
def tokens(fresh: str) -> Iterator[Tokens]:
    database = Database(fresh)
    yield Tokens(database)
    database.close()


def test_a_secret_is_stored_nowhere(fresh, tokens):
    secret, token = tokens.create("billing", verbs=("draw",), tags=("order-*",), days=2)
    (found,) = tokens.list()

    assert found == token
    assert (found.verbs, found.tags) == (("draw",), ("order-*",))
    assert found.expires_at - found.created_at == timedelta(days=2)
    assert len(secret) >= len("allocator_") + 43
    with administrator(fresh) as connection:
        row = connection.execute(text("SELECT * FROM allocator_token")).one()
    assert secret.removeprefix("allocator_") not in str(row)


def test_no_two_of_one_name_are_valid(tokens):
    make = partial(tokens.create, "billing", verbs=("draw",), tags=("*",))
    _, first = make()
    with pytest.raises(InvalidSetting, match=f"or revoke it with: allocator tokens revoke {first.number}$"):
        make()
    tokens.create("other", verbs=("draw",), tags=("*",))
    tokens.revoke(first.number)
    _, second = make()

    assert [token.number for token in tokens.list() if token.name == "billing"] == [second.number]
    with pytest.raises(InvalidSetting, match="there is no token"):
        tokens.revoke(first.number)


# -- a service that has tokens


OPEN = {"/healthz", "/readyz", "/openapi.json"}
"""What answers without a token."""


def test_a_route_that_is_not_named_here_needs_a_token_and_its_right(tmp_path):
    app = application(ServeSettings((f"sqlite:///{tmp_path}/ids.db",), compat=COMPATIBLE))
    routes = [one for one in app._framework.routes if isinstance(one, Route) and one.path not in OPEN]
    with Guarded(str(tmp_path), "--compat", ",".join(COMPATIBLE)) as guarded:
        poor, service = guarded.make("poor", tags=("nothing",)), guarded.service
        service.put("/v1/tags/5", token=guarded.admin, json={})
        for method, path in [(method, re.sub("{.*?}", "5", one.path)) for one in routes for method in one.methods]:
            place = f"{path}?bizType=5" if path.startswith("/tinyid/") else path
            assert service.ask(method, place).status == 401, (method, path)
            expected = 200 if path == "/v1/inspect/5" else 403  # which is for any token
            assert service.ask(method, place, token=poor).status == expected, (method, path)
        assert service.post("/v1/tags/5/ids", token=guarded.admin).ids == ["1"]
        old = guarded.make("old", tags=("order", "@snowflake"))
        assert wrong_answers(service, OF_OTHERS, {"admin": guarded.admin, "old": old}, SECRET=old) == []
        assert old not in service.log()
    assert len(routes) > 24


def test_a_route_cannot_be_written_without_a_right():
    with pytest.raises(TypeError, match="right"):
        GuardedRoute("/v1/new", lambda: None)  # type: ignore[call-arg]


TOKENS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "drawing": (("draw",), ("order", "bill-*")),
    "all": (("draw",), ("*",)),
    "schemes": (("draw",), ("s*", "meteor", "snowflake", "o*")),
    "meteors": (("draw",), ("@meteor",)),
    "reading": (("read",), ("seen-*",)),
    "reader": (("read",), ("*",)),
    "some": (("administer",), ("mine-*",)),
}
"""Their verbs and patterns, by their names."""
RIGHTS = """
POST /v1/meteor -> 401 www-authenticate: Bearer … AccessDenied … not invalid_token
all: POST /v1/tags/never-made/ids -> 404 UnknownTag
POST /v1/tags/order/ids <Authorization: Bearer> -> 401 AccessDenied
POST /v1/tickets/a <Authorization: Basic YTpi> -> 401 AccessDenied
POST /v1/tags/order/ids <Authorization: Bearer allocator_x> -> 401 www-authenticate: Bearer error="invalid_token"
GET /healthz -> 200
GET /readyz -> 200
GET /openapi.json -> 200
admin: PUT /v1/tags/seen-1 {} -> 201
admin: PUT /v1/tags/hidden-1 {} -> 201
admin: PUT /v1/tags/bill-2 {} -> 201
drawing: POST /v1/tags/order/ids -> 200
drawing: POST /v1/tags/bill-2/ids -> 200
drawing: POST /v1/tags/other/segments -> 403
drawing: POST /v1/tags/orders/ids -> 403
drawing: POST /v1/tickets/bill-x -> 200
drawing: POST /v1/tickets/x -> 403
drawing: POST /v1/workers/bill-x {"seconds":60,"now":NOW} -> 200
drawing: POST /v1/workers/yours {"seconds":60,"now":NOW} -> 403
drawing: GET /v1/tags/order -> 200
drawing: GET /v1/tags -> 403
drawing: PUT /v1/tags/order {} -> 403
drawing: GET /metrics -> 403
schemes: POST /v1/meteor -> 403 this token may not draw '@meteor'
schemes: POST /v1/nodes -> 403 this token may not draw '@meteor'
schemes: POST /v1/snowflake -> 403 this token may not draw '@snowflake'
schemes: POST /v1/workers/@snowflake {} -> 403 this token may not draw '@snowflake'
schemes: PUT /v1/workers/@snowflake {} -> 403
schemes: POST /v1/objectids -> 403 this token may not draw '@objectid'
schemes: POST /v1/tags/snowflake/ids -> 200
meteors: POST /v1/meteor -> 200
meteors: POST /v1/nodes -> 200
meteors: POST /v1/snowflake -> 403
meteors: POST /v1/tags/meteor/ids -> 403
reading: GET /v1/tags -> 200 "tag":"seen-1" … }]}
reading: GET /v1/tags/hidden-1 -> 403
reading: POST /v1/tags/seen-1/ids -> 403
reading: POST /v1/workers/seen-1 {"seconds":60,"now":NOW} -> 403
reading: PUT /v1/tags/seen-1 {} -> 403
reading: GET /metrics -> 403
reader: GET /metrics -> 200
some: PUT /v1/tags/mine-1 {} -> 201
some: PUT /v1/tags/yours {} -> 403
"""


def test_a_token_is_good_for_its_verbs_tags_and_schemes(guarded, service):
    tokens = {name: guarded.make(name, *verbs, tags=tags) for name, (verbs, tags) in TOKENS.items()}

    assert wrong_answers(service, RIGHTS, tokens | {"admin": guarded.admin}, NOW=str(now_ms())) == []
    assert [one["tag"] for one in service.get("/v1/tags", token=tokens["reading"]).json["tags"]] == ["seen-1"]


OF_OTHERS = """
admin: PUT /v1/tags/order {} -> 201
GET /api/segment/get/order -> 401
old: GET /api/segment/get/order -> 200 = 1
old: GET /api/segment/get/other -> 403
old: GET /api/snowflake/get/x -> 200
GET /tinyid/id/nextIdSimple?bizType=order&token=wrong -> 401
GET /tinyid/id/nextId?bizType=other&token=SECRET -> 403
GET /tinyid/id/nextIdSimple?bizType=order&token=SECRET -> 200 = 2
GET /tinyid/id/nextIdSimple?bizType=order -> 401
old: GET /tinyid/id/nextIdSimple?bizType=order -> 200 = 3
"""
"""A proxy adds the token to the last one."""


def test_a_pattern_makes_no_tags(guarded, service, tag):
    """Whoever may make up names would fill the database with tags: by a name in full, or by the right to administer."""
    pattern, named = guarded.make("pattern", tags=(f"{tag}*",)), guarded.make("named", tags=(f"{tag}-named",))
    administrator = guarded.make("administrator", "draw", "administer", tags=(f"{tag}*",))
    for path in ("ids", "segments"):
        refused = service.post(f"/v1/tags/{tag}/{path}", token=pattern)
        assert (refused.status, refused.json["error"]) == (404, "UnknownTag")
        assert refused.json["detail"].endswith("does not exist; create it by PUT, or with: allocator tags create TAG")
    with Allocator(service.address, token=pattern) as ids, pytest.raises(UnknownTag, match="tags create"):
        ids.next_id(tag)
    for owner, name in ((named, "named"), (administrator, "administered")):
        assert service.post(f"/v1/tags/{tag}-{name}/segments", token=owner).status == 200
        assert service.post(f"/v1/tags/{tag}-{name}/ids", token=pattern).status == 200
    assert service.post(f"/v1/tags/{tag}/ids", token=administrator).ids == ["1"]
    assert service.post(f"/v1/tags/{tag}/ids", token=pattern).ids == ["2"]


def test_nodes_and_workers_are_given_slowly(guarded, service):
    secret = guarded.make("greedy")
    answers = [service.post("/v1/nodes", token=secret) for _ in range(40)]

    assert 20 <= [answer.status for answer in answers].count(200) <= 25
    refused = [(one.status, one.json["error"], one.headers["Retry-After"]) for one in answers if one.status != 200]
    assert set(refused) == {(429, "TooManyRequests", "1")}


def test_a_secret_is_in_no_log_wherever_it_was_sent(guarded, service):
    secret, other = guarded.make("astray"), guarded.make("seeing", tags=("no",))
    for path in (f"/v1/tags/{secret}/ids", f"/v1/meteor?token={secret}", f"/v1/meteor?{secret}=1", f"/v1/{secret}"):
        assert {service.post(path, token=token).status for token in (None, other)} <= {400, 401, 403, 404}, path
    service.get(f"/v1/inspect/{secret}", token=secret)
    service.post("/v1/meteor", X_Request_Id=secret, Cookie=f"allocator={secret}", X_Api_Key=secret)
    service.put("/v1/tags/x", token=guarded.admin, json={"failover_gap": secret, secret: 1})

    lines = [line for line in service.lines() if line.get("status")]
    assert secret not in service.log()
    assert secret[:40] not in service.log()
    assert any("allocator_***" in line["path"] for line in lines)


def test_a_refusal_says_who_was_refused_and_why(guarded, service, tag):
    secret = guarded.make("refused-one", tags=("a",))
    number = number_of(guarded, "refused-one")
    for path, status, why in (
        (f"/v1/tags/{tag}/ids", 403, "this token may not draw"),
        (f"/v1/tags/{tag}", 405, "POST is not allowed here; allowed: GET, PUT"),
    ):
        for token in (secret, None):
            assert service.post(path, token=token).status == (status if token or status == 405 else 401)
            found = next(line for line in reversed(service.lines()) if line.get("path") == path)
            assert (found["caller"], found["token"]) == ("127.0.0.1", number if token else None)
            caller = f"127.0.0.1, token {number}" if token else "127.0.0.1"
            assert f"from {caller}: {why if token or status == 405 else 'no token was sent'}" in found["message"]


def number_of(guarded: Guarded, name: str) -> int:
    return next(one.number for one in guarded.tokens.list() if one.name == name)


def test_a_token_is_good_at_once_and_when_it_ended_the_log_alone_says_why(guarded, service, tag):
    """Also on the hot route, which it was good for before."""
    path = f"/v1/tags/{tag}/ids"
    expired, revoked = guarded.make("ends-itself", tags=(tag,), days=6 / 86_400), guarded.make("ends-by-hand")
    assert [service.post(path, token=one).status for one in (expired, expired, revoked, revoked)] == [200] * 4
    numbers = [number_of(guarded, name) for name in ("ends-by-hand", "ends-itself")]
    guarded.tokens.revoke(numbers[0])
    unknown = "the token is unknown, or was revoked before this service started"
    reasons = {
        revoked: f"token {numbers[0]} was revoked",
        expired: f"token {numbers[1]} expired at ",
        PREFIX + "x" * 43: unknown,
        "x": unknown,
    }
    details = set()
    for secret, reason in reasons.items():
        assert until(lambda secret=secret: service.post(path, token=secret).status == 401, 10)
        details.add(service.post(path, token=secret).json["detail"])
        assert f"from 127.0.0.1: {reason}" in service.lines()[-1]["message"]

    assert len(details) == 1


def test_each_administrative_change_is_one_line_with_who_made_it(guarded, service):
    number = number_of(guarded, "admin")
    for form in ({"step": 7}, {"step": 8, "failover_gap": "refuse"}):
        assert service.put("/v1/tags/changed", token=guarded.admin, json=form).status < 300
    found = [line for line in service.lines() if line.get("change") and line["tag"] == "changed"]

    assert [line["message"] for line in found] == [
        f"tag 'changed' was created by 127.0.0.1, token {number}: step=7",
        f"tag 'changed' was changed by 127.0.0.1, token {number}: step=8, failover_gap=refuse",
    ]


# -- a service that has none


def test_a_start_that_lets_nobody_or_everybody_in_is_refused_with_how_to_make_a_token(tmp_path):
    for options, sentences in {
        "": (f"no token exists in sqlite+pysqlite:///{tmp_path}/ids.db", "with: allocator serve --open"),
        "--open --host 0.0.0.0": ("--open serves this machine only, and cannot listen on 0.0.0.0",),
        "--host ids.example.org": ("so nobody could use the service on ids.example.org; create one",),
        "--host ::": ("so nobody could use the service on ::; create one",),
    }.items():
        refused = run(f"sqlite:///{tmp_path}/ids.db", "serve", *options.split())
        assert refused.code == 1
        for sentence in (*sentences, "with: allocator tokens create NAME"):
            assert sentence in refused.err


def test_logs_are_text_on_a_terminal(tmp_path):
    """Its first line, of a start that is refused."""
    command = [sys.executable, "-m", "allocator", "serve", "--url", f"sqlite:///{tmp_path}/ids.db"]
    ours, theirs = pty.openpty()
    subprocess.run(command, stderr=theirs, check=False, timeout=60, env=of_an_operator())
    first = os.read(ours, 4096).decode().splitlines()[0]
    os.close(ours)
    os.close(theirs)

    assert first.endswith(f" INFO ids come from sqlite+pysqlite:///{tmp_path}/ids.db")


FOREIGN = """
POST /v1/tags/order/ids -> 401 ask it by the name localhost
POST /v1/nodes -> 401
PUT /v1/tags/evil {} -> 401
GET /api/segment/get/order -> 401
GET /tinyid/id/nextIdSimple?bizType=order&token=x -> 401
"""


def test_an_open_service_is_no_pages_but_its_own(tmp_path):
    """A page in a browser on this machine, also under a name that was pointed here, may do nothing."""
    options = ("--compat", "leaf,tinyid")
    with Served(f"sqlite:///{tmp_path}/ids.db", options=options, is_open=False, ALLOCATOR_OPEN="1") as service:
        assert "no token exists: serving this machine only, without authentication. Create one with" in service.log()
        assert service.address.startswith("http://127.0.0.1:")
        for headers in ("<Host: evil.example.org> <Authorization: Bearer x>", "<Origin: null>"):
            assert wrong_answers(service, FOREIGN.replace("->", f"{headers} ->")) == []
        own = f"POST /v1/tags/order/ids <Origin: {service.address}> <Sec-Fetch-Site: same-origin> -> 200"
        assert wrong_answers(service, f"{own}\nGET /tinyid/id/nextIdSimple?bizType=order&token=x -> 200 = 2") == []


def test_an_open_service_that_was_closed_stays_closed(tmp_path):
    """Whoever revokes the last token does not mean to let everybody in, now or after the next start."""
    url = f"sqlite:///{tmp_path}/ids.db"
    database = Database(url)
    with Served(url) as service:
        tokens = Tokens(database)
        secret, token = tokens.create("only", verbs=("draw",), tags=("order",))
        assert until(lambda: service.post("/v1/tags/order/ids").status == 401)
        assert service.post("/v1/tags/order/ids", token=secret).status == 200
        tokens.revoke(token.number)
        assert until(lambda: service.post("/v1/tags/order/ids", token=secret).status == 401)
        assert {service.post("/v1/meteor").status for _ in range(5)} == {401}
        assert service.post("/v1/tags/order/ids").status == 401
    for is_open, host in ((True, "127.0.0.1"), (False, "0.0.0.0")):
        with Served(url, is_open=is_open, options=("--host", host)) as service:
            assert host in service.log()
            assert service.post("/v1/meteor").status == 401
    database.close()


@pytest.mark.parametrize("kind", ["postgres"])
def test_a_revoked_token_is_refused_while_every_connection_waits(fresh):
    """Its owner, or anybody, may ask for locked rows again and again."""
    with Allocator(fresh) as ids, closing(Database(fresh)) as database, ThreadPoolExecutor(6) as pool:
        for number in range(6):
            ids.ticket(f"t{number}")
        tokens = Tokens(database)
        (one, _), (two, _), (revoked, row) = (
            tokens.create(name, verbs=("draw",), tags=("*",)) for name in ("a", "b", "c")
        )
        with (
            Served(fresh, options=("--timeout", "60"), is_open=False) as service,
            create_engine(fresh, poolclass=NullPool).connect() as own,
        ):
            own.execute(text("LOCK TABLE allocator_segment"))
            for number, token in enumerate([one, two] * 3):
                pool.submit(service.post, f"/v1/tickets/t{number}", token=token)
            waiting = text("SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND relation IS NOT NULL")
            assert until(lambda: own.execute(waiting).scalar_one() >= 4)
            assert service.post("/v1/objectids", token=revoked).status == 200
            tokens.revoke(row.number)
            assert until(lambda: service.post("/v1/objectids", token=revoked).status == 401)
