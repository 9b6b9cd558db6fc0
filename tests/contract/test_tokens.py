"""Who may ask the service for what."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import NullPool, create_engine, text
from starlette.routing import Route
from support.kit import SQLITE, run
from support.processes import patience
from support.servers.administrator import administrator, execute
from support.service.served import Guarded, Served, of_an_operator

from allocator import Allocator
from allocator.database.store import Database
from allocator.errors import InvalidSetting, UnknownTag
from allocator.schemes.token import PREFIX, digest_of
from allocator.service.app import application
from allocator.service.dispatch import GuardedRoute
from allocator.service.server import check_access
from allocator.service.settings import COMPATIBLE, ServeSettings
from allocator.service.token_administration import Tokens

KNOWN_WITHIN = 8.0
"""Seconds within which a service has read the tokens again."""


@pytest.fixture
def tokens(fresh: str) -> Iterator[Tokens]:
    database = Database(fresh)
    yield Tokens(database)
    database.close()


@pytest.mark.statements
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


@pytest.mark.statements
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


def test_without_a_token_nothing_is_given(service, tag):
    for headers, said in (
        ({}, "Bearer"),
        ({"Authorization": "Bearer"}, "Bearer"),
        ({"Authorization": "Basic YTpi"}, "Bearer"),
        ({"Authorization": "Bearer allocator_x"}, 'Bearer error="invalid_token"'),
    ):
        for path in (f"/v1/tags/{tag}/ids", "/v1/meteor", "/v1/tickets/a"):
            refused = service.post(path, **headers)
            assert (refused.status, refused.json["error"]) == (401, "AccessDenied")
            assert refused.headers["WWW-Authenticate"] == said
    assert service.get("/metrics").status == 401
    assert service.get("/v1/inspect/5").status == 401
    assert service.get("/healthz").status == service.get("/readyz").status == service.get("/openapi.json").status == 200


OPEN = {"/healthz", "/readyz", "/openapi.json"}
"""What answers without a token."""
TINYID_REFUSES = {b"", b'{"data":null,"code":5,"message":"token is error"}'}


def test_a_route_that_is_not_named_here_needs_a_token_and_its_right(tmp_path):
    app = application(ServeSettings((f"sqlite:///{tmp_path}/ids.db",), compat=COMPATIBLE))
    routes = [one for one in app._framework.routes if isinstance(one, Route) and one.path not in OPEN]
    with Guarded(str(tmp_path), "--compat", ",".join(COMPATIBLE)) as guarded:
        poor, service = guarded.make("poor", tags=("nothing",)), guarded.service
        service.put("/v1/tags/5", token=guarded.admin, json={})
        for method, path in [(method, re.sub("{.*?}", "5", one.path)) for one in routes for method in one.methods]:
            if path.startswith("/tinyid/"):
                answers = [service.ask(method, f"{path}?bizType=5&token={token}") for token in ("", poor)]
                assert {one.body for one in answers} <= TINYID_REFUSES, path
            else:
                assert service.ask(method, path).status == 401, (method, path)
                expected = 200 if path == "/v1/inspect/5" else 403  # which is for any token
                assert service.ask(method, path, token=poor).status == expected, (method, path)
        assert service.post("/v1/tags/5/ids", token=guarded.admin).ids == ["1"]
    assert len(routes) > 28


def test_a_route_cannot_be_written_without_a_right():
    with pytest.raises(TypeError, match="right"):
        GuardedRoute("/v1/new", lambda: None)  # type: ignore[call-arg]


def test_a_token_is_good_for_its_verbs_and_its_tags(guarded, service):
    drawing = guarded.make("drawing", tags=("order", "bill-*"))
    service.put("/v1/tags/bill-2", token=guarded.admin, json={})
    for path, status in {
        "/v1/tags/order/ids": 200,
        "/v1/tags/bill-2/ids": 200,
        "/v1/tags/orders/ids": 403,
        "/v1/tags/other/segments": 403,
        "/v1/tickets/bill-x": 200,
        "/v1/tickets/x": 403,
        "/v1/meteor": 403,
        "/v1/nodes": 403,
        "/v1/workers/@snowflake": 403,
        "/v1/snowflake": 403,
        "/v1/objectids": 403,
    }.items():
        assert service.post(path, token=drawing).status == status, path
    assert service.get("/v1/tags/order", token=drawing).status == 200
    assert service.get("/v1/tags", token=drawing).status == 403
    assert service.put("/v1/tags/order", token=drawing, json={}).status == 403
    assert service.get("/metrics", token=drawing).status == 403


def test_a_token_is_good_for_its_schemes_alone(guarded, service, tag):
    of_tags = guarded.make("s-tags", tags=("s*", "meteor", "snowflake", "o*"))
    of_meteors = guarded.make("meteors", tags=("@meteor",))
    for path, scheme in {
        "meteor": "@meteor",
        "nodes": "@meteor",
        "snowflake": "@snowflake",
        "workers/@snowflake": "@snowflake",
        "objectids": "@objectid",
    }.items():
        refused = service.post(f"/v1/{path}", token=of_tags, json={} if path.startswith("workers") else None)
        assert (refused.status, refused.json["detail"]) == (403, f"this token may not draw {scheme!r}")
        assert (service.post(f"/v1/{path}", token=of_meteors).status == 200) is (scheme == "@meteor")
    assert service.put("/v1/workers/@snowflake", token=of_tags, json={}).status == 403
    assert service.post("/v1/tags/snowflake/ids", token=of_tags).status == 200
    assert service.post("/v1/tags/meteor/ids", token=of_meteors).status == 403


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


def test_a_token_that_names_nothing_is_for_everything_and_else_for_what_it_names(tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"

    for words, tags in {"a": ["*"], "b --tags s* --tags @snowflake": ["s*", "@snowflake"]}.items():
        assert run(url, "tokens", "create", *words.split(), "--json").json["tags"] == tags


def test_a_reader_and_an_administrator_have_what_matches(guarded, service):
    for name in ("seen-1", "hidden-1"):
        service.put(f"/v1/tags/{name}", token=guarded.admin, json={})
    reading = guarded.make("reading", "read", tags=("seen-*",))
    found = service.get("/v1/tags", token=reading).json["tags"]

    assert [one["tag"] for one in found] == ["seen-1"]
    assert service.get("/v1/tags/hidden-1", token=reading).status == 403
    assert service.post("/v1/tags/seen-1/ids", token=reading).status == 403
    assert service.put("/v1/tags/seen-1", token=reading, json={}).status == 403
    assert service.get("/metrics", token=reading).status == 403
    assert service.get("/metrics", token=guarded.make("reading-all", "read")).status == 200
    some = guarded.make("some", "administer", tags=("mine-*",))
    assert service.put("/v1/tags/mine-1", token=some, json={}).status == 201
    assert service.put("/v1/tags/yours", token=some, json={}).status == 403


def test_a_new_token_is_good_at_once_and_a_revoked_one_soon_no_more(guarded, service, tag):
    path = f"/v1/tags/{tag}/ids"
    old = guarded.make("old", tags=(tag,))
    assert service.post(path, token=old).status == 200
    new = guarded.make("new")
    assert [service.post(path, token=one).status for one in (old, old)] == [200, 200]
    guarded.tokens.revoke(next(one.number for one in guarded.tokens.list() if one.name == "old"))
    assert until(lambda: service.post(path, token=old).status == 401)
    assert service.post(path, token=new).status == 200


def until(holds: Callable[[], bool], seconds: float = KNOWN_WITHIN) -> bool:
    return patience.until(holds, seconds, every=0.1)


def test_a_token_that_has_expired_is_none(guarded, service, tag):
    """Also on the hot route, which it was good for before."""
    secret = guarded.make("passing", tags=(tag,), days=3 / 86_400)
    path = f"/v1/tags/{tag}/ids"

    assert until(lambda: service.post(path, token=secret).status == 200)
    assert until(lambda: service.post(path, token=secret).status == 401, 4)


def test_nodes_and_workers_are_given_slowly(guarded, service):
    secret = guarded.make("greedy")
    answers = [service.post("/v1/nodes", token=secret) for _ in range(40)]

    given = [answer.status for answer in answers].count(200)
    refused = [answer for answer in answers if answer.status == 429]
    assert 20 <= given <= 25
    assert len(refused) == 40 - given
    assert {answer.json["error"] for answer in refused} == {"TooManyRequests"}
    assert {answer.headers["Retry-After"] for answer in refused} == {"1"}


def test_a_secret_is_in_no_log_wherever_it_was_sent(guarded, service):
    secret = guarded.make("astray")
    service.post("/v1/tags/a b/ids", token=secret)
    for path in (
        f"/v1/tags/{secret}/ids",
        f"/v1/meteor?token={secret}",
        f"/v1/meteor?{secret}=1",
        f"/v1/{secret}",
    ):
        assert service.post(path).status in {401, 404}
        assert service.post(path, token=guarded.make("seeing", tags=("no",))).status >= 400
        guarded.tokens.revoke(guarded.tokens.list()[-1].number)
    service.get(f"/v1/inspect/{secret}", token=secret)
    service.post("/v1/meteor", X_Request_Id=secret)
    service.post("/v1/meteor", Cookie=f"allocator={secret}", X_Api_Key=secret)
    service.put("/v1/tags/x", token=guarded.admin, json={"failover_gap": secret, secret: 1})
    service.put("/v1/tags/x", token=guarded.admin, json={"failover_gap": secret})

    lines = [line for line in service.lines() if line.get("status")]
    assert len(lines) >= 10
    assert secret not in service.log()
    assert secret[:40] not in service.log()
    assert any("allocator_***" in line["path"] for line in lines)


def test_a_refusal_says_who_was_refused(guarded, service):
    secret = guarded.make("refused-one", tags=("a",))
    number = next(one.number for one in guarded.tokens.list() if one.name == "refused-one")
    for name, token in (("hot", secret), ("cold", None)):
        service.post(f"/v1/tags/{name}-refused/ids", token=token)
        found = next(line for line in reversed(service.lines()) if line.get("path") == f"/v1/tags/{name}-refused/ids")
        assert found["caller"] == "127.0.0.1"
        assert found["token"] == (number if token else None)
        assert f"from 127.0.0.1{f', token {number}: ' if token else ': no token was sent'}" in found["message"]


def test_the_log_says_why_a_token_was_refused_and_its_sender_does_not_learn_it(guarded, service, tag):
    expired, revoked = guarded.make("ends-itself", days=4 / 86_400), guarded.make("ends-by-hand")
    numbers = {one.name: one.number for one in guarded.tokens.list()}
    path = f"/v1/tags/{tag}/ids"
    assert until(lambda: service.get("/v1/tags", token=revoked).status != 401)  # then the other one was read too
    guarded.tokens.revoke(numbers["ends-by-hand"])
    reasons = {
        revoked: f"token {numbers['ends-by-hand']} was revoked",
        expired: f"token {numbers['ends-itself']} expired at ",
        PREFIX + "x" * 43: "the token is unknown, or was revoked before this service started",
        "x": "the token is unknown, or was revoked before this service started",
    }
    details = set()
    for secret, reason in reasons.items():
        assert until(lambda secret=secret: service.post(path, token=secret).status == 401, 10)
        details.add(service.post(path, token=secret).json["detail"])
        assert f"from 127.0.0.1: {reason}" in service.lines()[-1]["message"]

    assert len(details) == 1


def test_a_refused_method_is_the_reason_whoever_sent_it(guarded, service, tag):
    secret = guarded.make("wrong-method")
    number = next(one.number for one in guarded.tokens.list() if one.name == "wrong-method")
    assert until(lambda: service.get("/v1/tags", token=secret).status != 401)
    for token, caller in ((secret, f"127.0.0.1, token {number}"), (None, "127.0.0.1")):
        assert service.get(f"/v1/tags/{tag}/ids", token=token).status == 405
        assert f"from {caller}: GET is not allowed here; allowed: POST" in service.lines()[-1]["message"]


def test_each_administrative_change_is_one_line_with_who_made_it(guarded, service):
    number = next(one.number for one in guarded.tokens.list() if one.digest == digest_of(guarded.admin.encode()))
    for form in ({"step": 7}, {"step": 8, "failover_gap": "refuse"}):
        assert service.put("/v1/tags/changed", token=guarded.admin, json=form).status < 300
    found = [line for line in service.lines() if line.get("change") and line["tag"] == "changed"]

    assert [line["message"] for line in found] == [
        f"tag 'changed' was created by 127.0.0.1, token {number}: step=7",
        f"tag 'changed' was changed by 127.0.0.1, token {number}: step=8, failover_gap=refuse",
    ]


# -- a service that has none


def started(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A start that ends by itself."""
    command = [sys.executable, "-m", "allocator", "serve", "--port", "0", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=30)


def test_without_any_token_it_does_not_start_and_says_how_to_make_one(tmp_path):
    refused = started(tmp_path, "--url", f"sqlite:///{tmp_path}/ids.db")

    assert refused.returncode == 1
    assert f"no token exists in sqlite+pysqlite:///{tmp_path}/ids.db" in refused.stderr
    assert "with: allocator tokens create NAME; " in refused.stderr
    assert "with: allocator serve --open" in refused.stderr


@SQLITE
def test_for_other_machines_a_token_is_the_only_way(fresh):
    """A service for this machine alone is no answer to who wants to serve others."""
    for host in ("0.0.0.0", "::", "192.0.2.7", "ids.example.org"):
        said = f"so nobody could use the service on {re.escape(host)}; create one with: allocator tokens create NAME$"
        with pytest.raises(InvalidSetting, match=said):
            check_access(ServeSettings((fresh,), host=host))


@pytest.mark.parametrize("options", [(), ("--log-format", "json")])
def test_logs_are_text_on_a_terminal_and_json_where_it_is_said(tmp_path, options):
    """Its first line, of a start that is refused."""
    command = [sys.executable, "-m", "allocator", "serve", "--url", f"sqlite:///{tmp_path}/ids.db", *options]
    ours, theirs = pty.openpty()
    subprocess.run(command, stderr=theirs, check=False, timeout=60, env=of_an_operator())
    first = os.read(ours, 4096).decode().splitlines()[0]
    os.close(ours)
    os.close(theirs)

    said = f"ids come from sqlite+pysqlite:///{tmp_path}/ids.db"
    if options:
        assert json.loads(first)["message"] == said
    else:
        assert first.endswith(f" INFO {said}")


def test_open_is_for_this_machine_alone(tmp_path):
    refused = started(tmp_path, "--open", "--host", "0.0.0.0", "--url", f"sqlite:///{tmp_path}/ids.db")

    assert refused.returncode == 1
    assert "--open serves this machine only, and cannot listen on 0.0.0.0" in refused.stderr
    assert "create a token with: allocator tokens create NAME" in refused.stderr
    with Served(f"sqlite:///{tmp_path}/ids.db", is_open=False, ALLOCATOR_OPEN="1") as service:
        first, made, second = (line["message"] for line in service.lines()[:3])
        assert first == f"ids come from sqlite+pysqlite:///{tmp_path}/ids.db"
        assert made.startswith("made a new SQLite database")
        assert "no token exists: serving this machine only, without authentication. Create one with" in second
        assert service.address.startswith("http://127.0.0.1:")
        assert service.post("/v1/meteor").status == 200


def test_an_open_service_is_no_pages_but_its_own(tmp_path):
    """A page in a browser on this machine, also under a name that was pointed here, may do nothing."""
    with Served(f"sqlite:///{tmp_path}/ids.db", options=("--compat", "leaf,tinyid")) as service:
        assert service.post("/v1/tags/order/ids").status == 200
        for headers in ({"Host": "evil.example.org", "Authorization": "Bearer x"}, {"Origin": "null"}):
            answer = service.post("/v1/tags/order/ids", **headers)
            assert answer.status == 401, headers
            assert "ask it by the name localhost" in answer.body.decode()
            assert service.post("/v1/nodes", **headers).status == 401
            assert service.put("/v1/tags/evil", json={}, **headers).status == 401
            assert service.get("/api/segment/get/order", **headers).status == 401
            assert service.get("/tinyid/id/nextIdSimple?bizType=order&token=x", **headers).body == b""
        own = {"Origin": service.address, "Sec_Fetch_Site": "same-origin"}
        assert service.post("/v1/tags/order/ids", **own).status == 200
        assert service.get("/tinyid/id/nextIdSimple?bizType=order&token=x").status == 200


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


# -- the command line


def test_tokens_are_made_listed_and_revoked_by_command(tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"
    secret = run(url, "tokens", "create", "billing", "--tags", "order-*", "--may", "draw", "--may", "read").out.strip()
    listed = run(url, "tokens", "list").out

    assert secret.startswith("allocator_")
    assert "billing" in listed and "order-*" in listed and "draw,read" in listed  # noqa: PT018
    assert secret not in listed
    execute(url, "UPDATE allocator_token SET expires_at = '2020-01-01 00:00:00'")
    ended = run(url, "tokens", "list").out
    assert [each.splitlines()[1].split()[-1] for each in (listed, ended)] == ["-", "yes"]
    assert run(url, "tokens", "list", "--json").json[0]["expired"]
    assert run(url, "tokens", "revoke", "1").out == "token 1 is revoked\n"
    assert run(url, "tokens", "list", "--json").json == []
    for words, sentence in {
        "create a/b": "the name of a token must be spelled like a tag",
        "create a --tags x/y": "a pattern must be 1 to 64",
        "create a --days -1": "days must be above 0",
        "revoke 7": "there is no token 7",
    }.items():
        refused = run(url, "tokens", *words.split())
        assert (refused.code, sentence in refused.err) == (1, True), refused
