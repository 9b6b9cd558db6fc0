"""The service, as a process: what its routes give and refuse, before every database."""

import re
import socket
from collections.abc import Callable
from itertools import product

import pytest
from support.distinct import distinct
from support.processes.patience import until
from support.rules import rule
from support.service.served import Served

import allocator
from allocator import inspect_id

ROUTES_WITH_COUNT = ("/v1/tags/some/ids", "/v1/meteor", "/v1/snowflake", "/v1/objectids")


@pytest.fixture
def service(kind: str, served: Callable[..., Served]) -> Served:
    return served(kind)


@pytest.fixture
def embedded(served: Callable[..., Served]) -> Served:
    """Where the database makes no difference."""
    return served("sqlite")


# -- ids


def test_ids_of_a_tag_follow_each_other(service, tag):
    path = f"/v1/tags/{tag}/ids"
    first = service.post(path)

    assert first.json == {"tag": tag, "ids": ["1"]}
    assert service.post(f"{path}?count=3").ids == ["2", "3", "4"]
    answers = [service.post(path) for _ in range(3)]
    assert [answer.ids for answer in answers] == [["5"], ["6"], ["7"]]
    assert {answer.headers["Cache-Control"] for answer in (first, *answers)} == {"no-store"}
    assert first.headers["Content-Type"] == "application/json"


def test_a_thousand_ids_come_in_one_answer_and_none_is_lost(embedded, tag):
    path = f"/v1/tags/{tag}/ids?count=1000"
    drawn = [int(number) for _ in range(3) for number in embedded.post(path).ids]

    assert drawn == list(range(1, 3001))


def test_ids_of_a_scheme_increase(service):
    for route in ("meteor", "snowflake"):
        drawn = [int(number) for _ in range(5) for number in service.post(f"/v1/{route}?count=100").ids]

        assert distinct(drawn)
        assert sorted(drawn) == drawn
        assert inspect_id(drawn[0], scheme=route).readings[0].likely, route


def test_object_ids_differ(embedded):
    drawn = embedded.post("/v1/objectids?count=1000").ids

    assert distinct(drawn) == 1000
    assert all(re.fullmatch("[0-9a-f]{24}", one) for one in drawn)


def test_a_ticket_is_the_next_one_of_its_type(service, tag):
    drawn = [service.post(f"/v1/tickets/{tag}").json for _ in range(3)]

    assert [one["type"] for one in drawn] == [tag] * 3
    assert distinct(one["id"] for one in drawn) == 3
    assert all(isinstance(one["id"], str) for one in drawn), "a browser reads 9007199254740993 as …992"


def test_a_segment_is_the_callers_alone(service, tag):
    one = service.post(f"/v1/tags/{tag}/segments?size=500").json
    two = service.post(f"/v1/tags/{tag}/segments").json

    assert one == {"tag": tag, "start": "1", "stop": "501", "step": "1"}
    assert two == {"tag": tag, "start": "501", "stop": "1501", "step": "1"}
    assert service.post(f"/v1/tags/{tag}/ids").ids == ["1501"]


@rule(7)
def test_a_segment_is_refused_below_what_its_client_has_seen(embedded, tag):
    """Rule 7, by the client's word; and its word stops nobody else."""
    path = f"/v1/tags/{tag}/segments?size=10"
    embedded.post(path)
    refused = embedded.post(f"{path}&seen=1.1.5000")

    assert refused.status == 409
    assert refused.json["error"] == "MaxValueWentBack"
    name = refused.headers["X-Request-Id"]
    assert until(lambda: [line for line in embedded.lines() if line.get("request") == name])
    (line,) = (line for line in embedded.lines() if line.get("request") == name)
    assert (line["level"], line["status"]) == ("WARNING", 409)
    assert "the client says: " in line["message"], "this process has not seen them"
    assert embedded.post(f"{path}&seen=1.1.10").json["start"] == "11"
    assert embedded.post(f"/v1/tags/{tag}/ids").status == 200


def test_a_number_beyond_what_a_browser_reads_is_text(embedded, tag):
    embedded.put(f"/v1/tags/{tag}", json={"start_after": 2**53})
    answer = embedded.post(f"/v1/tags/{tag}/ids")

    assert answer.ids == ["9007199254740993"]


# -- tags


def test_a_tag_is_created_and_changed(service, tag):
    path = f"/v1/tags/{tag}"
    made = service.put(path, json={"step": 10, "limit": "1000"})

    assert made.status == 201
    assert made.json == {
        "tag": tag,
        "max_value": "0",
        "step": 10,
        "max_step": 10,
        "limit": "1000",
        "failover_gap": "auto",
    }
    changed = service.put(path, json={"step": 20, "max_step": 20})
    assert (changed.status, changed.json["step"]) == (200, 20)
    assert service.get(path).json == changed.json
    assert changed.json in service.get(f"/v1/tags?after={tag[:-1]}").json["tags"]


def test_conditions_say_whether_a_tag_is_created_or_changed(embedded, tag):
    path = f"/v1/tags/{tag}"

    assert embedded.put(path, json={}, If_Match="*").status == 404
    assert embedded.put(path, json={}, If_None_Match="*").status == 201
    assert embedded.put(path, json={}, If_None_Match="*").json["error"] == "TagExists"
    assert embedded.put(path, json={}, If_Match="*").status == 200
    assert embedded.put(path, json={}, If_Match="*", If_None_Match="*").status == 400


def test_a_condition_that_is_not_a_star_is_refused(embedded, tag):
    """Tags have no ETag: taken as *, it would change what it should not."""
    embedded.put(f"/v1/tags/{tag}", json={"step": 100})
    for name, value in product(("If-Match", "If-None-Match"), ('"x"', 'W/"x"', "", '*, "x"', "**")):
        refused = embedded.put(f"/v1/tags/{tag}", json={"step": 5}, **{name: value})
        assert (refused.status, f"{name} must be *" in refused.json["detail"]) == (400, True), (name, value)

    assert embedded.get(f"/v1/tags/{tag}").json["step"] == 100


def test_a_tag_that_has_given_its_last_id_is_gone(embedded, tag):
    embedded.put(f"/v1/tags/{tag}", json={"limit": 3})

    assert embedded.post(f"/v1/tags/{tag}/ids?count=3").ids == ["1", "2", "3"]
    refused = embedded.post(f"/v1/tags/{tag}/ids")
    assert (refused.status, refused.json["error"]) == (410, "Exhausted")


def test_a_batch_that_memory_does_not_hold_costs_nothing_when_it_cannot_be_had(embedded, tag):
    embedded.put(f"/v1/tags/{tag}", json={"limit": 50, "step": 10})
    assert embedded.post(f"/v1/tags/{tag}/ids").ids == ["1"]
    refused = embedded.post(f"/v1/tags/{tag}/ids?count=60")

    assert (refused.status, refused.json["error"]) == (400, "InvalidCount")
    assert "count must be at most 49, the ids left of tag" in refused.json["detail"]
    assert embedded.post(f"/v1/tags/{tag}/ids?count=49").ids == [str(number) for number in range(2, 51)]
    assert embedded.post(f"/v1/tags/{tag}/ids").status == 410


def test_an_id_is_taken_apart(embedded):
    found = embedded.get("/v1/inspect/5016762319896585?scheme=meteor").json

    assert found["readings"][0]["fields"] == {"second": "292014", "node": "0", "sequence": "1", "random": "1"}
    assert embedded.get("/v1/inspect/nonsense").status == 400
    assert embedded.get("/v1/inspect/a_b").json["error"] == "InvalidId"
    # As text, since JavaScript reads the number as 9007199254740992.
    for number in ("9007199254740993", "9223372036854775807", "01ARZ3NDEKTSV4RRFFQ69G5FAV"):
        for reading in embedded.get(f"/v1/inspect/{number}").json["readings"]:
            assert all(isinstance(value, str) for value in reading["fields"].values())
    (found,) = embedded.get("/v1/inspect/9007199254740993?scheme=segment").json["readings"]
    assert found["fields"]["value"] == "9007199254740993"

    (own,) = embedded.get("/v1/inspect/180363646902239241?layout=baidu:1/29/21/13&epoch=1474300800").json["readings"]
    assert (own["scheme"], own["time"]) == ("baidu", "2017-01-19T04:15:46+00:00")
    assert embedded.get("/v1/inspect/5?layout=baidu:1/2").status == 400


# -- what is refused


def test_an_odd_count_is_refused(embedded):
    """The answer of more than a thousand would keep all others waiting."""
    for path, count in product(ROUTES_WITH_COUNT, ("0", "1001", "many", "", "%00", "9" * 5000)):
        refused = embedded.post(f"{path}?count={count}")

        assert refused.status in {400, 414}, (path, count[:20])
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert refused.json["detail"]
        assert "\n" not in refused.json["detail"]
        if count == "1001":
            said = (refused.json["error"], refused.json["detail"])
            assert said == ("InvalidCount", "count must be 1 to 1000, got 1001")


def test_an_odd_tag_is_refused_and_not_logged_raw(embedded):
    names = ("a'b", "a%0d%0aSet-Cookie:x", "%1b[31mred", "%F0%9F%98%80", "x" * 10_000, "%20", "a%2Fb", "%00", "..%2f")
    for name, form in product(names, ("tags/{}/ids", "tags/{}/segments", "tickets/{}")):
        refused = embedded.post(f"/v1/{form.format(name)}")

        assert refused.status in {400, 404}, (form, name[:20])
        assert refused.json["status"] == refused.status
        assert len(refused.json["detail"]) < 300
        assert all("Set-Cookie" not in header for header in refused.headers)
    assert "\x1b" not in embedded.log()
    assert "\r" not in embedded.log()


def test_a_wrong_path_or_method_is_a_problem_too(embedded):
    for asked, status in {
        "GET /v1/tags/order/ids": 405,
        "POST /v1/tags": 405,
        "DELETE /v1/tags/order": 405,
        "POST /v1/nothing": 404,
        "POST /v1/tags/order/ids/": 404,
        "GET /favicon.ico": 404,
        "TRACE /v1/meteor": 405,
    }.items():
        refused = embedded.ask(*asked.split())

        assert (refused.status, refused.json["status"], asked) == (status, status, asked)
        assert bool(refused.headers.get("Allow")) == (status == 405), asked


def test_an_odd_body_is_refused(embedded, tag):
    odd = (b"", b"[]", b"{", b'{"step": 0}', b'{"step": true}', b'{"step": 1.5}', b'{"nope": 1}', b'{"limit": -1}')
    for body in (*odd, b'{"step": 1e99}', b'{"step": null}', b"[" * 5000, b"\xff\xfe", b'{"step": 10, "max_step": 5}'):
        refused = embedded.put(f"/v1/tags/{tag}", body=body)

        assert (refused.status, bool(refused.json["detail"])) == (400, True), body[:20]
    for body in (b"[" * 5000, b'{"step": ' + b"9" * 5000 + b"}"):  # Python's parser refuses them by other errors
        assert "must be a JSON object" in embedded.put(f"/v1/tags/{tag}", body=body).json["detail"], body[:20]
    assert embedded.get(f"/v1/tags/{tag}").status == 404


def test_fields_that_are_not_known_are_refused(embedded, tag):
    for query in ("size=5", "count=1&x=2", "Count=1"):
        assert embedded.post(f"/v1/tags/{tag}/ids?{query}").status == 400


def test_a_body_where_none_belongs_is_refused_and_an_empty_one_is_not(embedded, tag):
    path = f"/v1/tags/{tag}/ids"

    assert embedded.post(path, json={"count": 5}).status == 400
    assert embedded.post(path, json={}).ids == ["1"]
    assert embedded.post(path, body=b"").ids == ["2"]


def test_a_body_of_a_hundred_megabytes_is_refused_unread(embedded, tag):
    known = f"POST /v1/tags/{tag}/ids HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n"
    assert talk(embedded, known) == 413
    assert embedded.put(f"/v1/tags/{tag}", body=b" " * 100_000).status == 413
    chunked = f"PUT /v1/tags/{tag} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert talk(embedded, chunked + "fffff\r\n" + "x" * 0xFFFFF + "\r\n") == 413


def test_what_is_no_http_is_refused(embedded):
    assert talk(embedded, "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\n" + "X-Long: " + "y" * 400_000) == 431
    no_host = "POST /v1/meteor HTTP/1.1\r\nContent-Length: 0"
    versions = [f"POST /v1/meteor HTTP/{version}\r\nHost: localhost" for version in ("0.9", "2.0", "9.9")]
    for raw in ("\x00\x01\x02", "GET", "G" * 100, no_host, *versions):
        assert (talk(embedded, raw + "\r\n\r\n"), raw) == (400, raw)


def test_a_head_that_names_two_hosts_or_two_tokens_is_refused(embedded):
    embedded.post("/v1/meteor")  # its next request takes the short way
    lines = ("POST /v1/meteor", "GET /healthz", "GET /nowhere", "POST /v1/meteor?count=2")
    for line, double in product(lines, ("Host: evil", "host: localhost", "Authorization: a\r\nAuthorization: b")):
        head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{double}\r\nContent-Length: 0\r\n\r\n"
        assert talk(embedded, head) == 400, (line, double)


def test_what_follows_a_body_is_no_header(embedded):
    request = "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    for trailer in ("Host: localhost", "X-Forwarded-For: 192.0.2.1"):
        assert talk(embedded, f"{request}{trailer}\r\n\r\n") == 200, trailer


def test_nothing_after_a_chunked_body_gets_an_answer(embedded):
    """The server takes a request after the last two ends for trailers, so the one after that would answer for it."""
    lines = "POST /v1/meteor HTTP/1.1\r\nHost: localhost\r\n"
    plain = f"{lines}Content-Length: 0\r\n\r\n"
    for end in ("0\r\n\r\n", "0\r\n\n", "0\r\nA: b\n\r\n"):
        with socket.create_connection(("127.0.0.1", embedded.port), timeout=10) as connection:
            connection.sendall(f"{plain}{lines}Transfer-Encoding: chunked\r\n\r\n{end}{plain}{plain}".encode())
            said = connection.makefile("rb").read()

        assert said.count(b"HTTP/1.1 200 ") == 2, end


def talk(service: Served, text: str) -> int:
    """Send this, and return the status that comes back."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=10) as connection:
        try:
            connection.sendall(text.encode("latin-1"))
        except (BrokenPipeError, ConnectionResetError):
            pass  # it has answered already
        found = connection.recv(65536)
    return int(found.split()[1])


def test_a_defect_is_never_shown(embedded):
    """Nothing of all this was a mistake of the service."""
    assert "Traceback" not in embedded.log()
    assert not [line for line in embedded.lines() if line.get("status") == 500]


# -- names of requests, logs, descriptions


def test_a_request_has_a_name_in_the_answer_and_in_the_log(embedded, tag):
    for name in ("abc-123", "trace/9:z=="):
        assert embedded.post(f"/v1/tags/{tag}/ids", X_Request_Id=name).headers["X-Request-Id"] == name

    refused = embedded.post("/v1/tags/none/ids?count=0", X_Request_Id="find-me")
    assert refused.json["request"] == refused.headers["X-Request-Id"] == "find-me"
    (line,) = [line for line in embedded.lines() if line.get("request") == "find-me"]
    assert (line["status"], line["error"], line["method"]) == (400, "InvalidCount", "POST")
    odd_one = embedded.post("/v1/meteor?count=0", X_Request_Id="a b;c")
    odd = odd_one.headers["X-Request-Id"]
    assert odd_one.json["request"] == odd
    assert re.fullmatch("[0-9a-f]+-[0-9a-f]+", odd)
    unnamed = [embedded.post(f"/v1/tags/{tag}/ids").headers.get("X-Request-Id", "") for _ in range(3)]
    assert distinct(unnamed) == 3
    assert all(re.fullmatch("[0-9a-f]+-[0-9a-f]+", name) for name in unnamed)


def test_health_and_readiness(service):
    assert service.get("/healthz").json == {"status": "alive"}
    assert service.get("/readyz").json == {"status": "ready"}


FROZEN = """
import atexit, gc
atexit.register(lambda: print("frozen:", gc.get_freeze_count()))
from allocator.cli import main
main()
"""


def test_a_full_collection_goes_through_nothing_that_was_there_before_the_first_request(tmp_path):
    """It would answer nobody for 90 to 150 ms, which a thousand requests that wait bring about every second."""
    with Served(f"sqlite:///{tmp_path}/ids.db", program=("-c", FROZEN)) as service:
        service.stop()
        assert int(service.log().rpartition("frozen: ")[2]) > 50_000


def test_the_description_is_served_and_no_page_beside_it(embedded):
    """A page for it would load a script beside tokens."""
    assert "/v1/tags/{tag}/ids" in embedded.get("/openapi.json").json["paths"]
    for path in ("/docs", "/docs/", "/docs/../../etc/passwd"):
        assert (embedded.get(path).status, path) == (404, path)


def test_figures_tell_what_was_given_claimed_and_refused(embedded, tag):
    embedded.post(f"/v1/tags/{tag}/ids?count=250")
    embedded.post(f"/v1/tags/{tag}/ids?count=0")
    embedded.post(f"/v1/tags/{tag}/segments?size=30")
    embedded.post(f"/v1/tickets/{tag}")
    last = f'allocator_ids_total{{scheme="ticket",tag="{tag}"}}'
    assert until(lambda: figures_of(embedded).get(last) == 1)  # they are at most two seconds old
    figures = figures_of(embedded)

    assert figures[f'allocator_ids_total{{scheme="segment",tag="{tag}"}}'] == 250
    assert figures[f'allocator_ids_total{{scheme="block",tag="{tag}"}}'] == 30
    assert figures[f'allocator_ids_in_memory{{tag="{tag}"}}'] >= 750
    assert figures['allocator_claim_seconds_count{outcome="ok",what="segment"}'] >= 1
    assert figures['allocator_refusals_total{error="InvalidCount",status="400"}'] >= 1
    assert figures["allocator_ready"] == 1
    labels = 'method="POST",route="/v1/tags/{tag}/ids",status='
    assert figures[f'allocator_request_seconds_count{{{labels}"2xx"}}'] >= 1
    assert figures[f'allocator_request_seconds_count{{{labels}"4xx"}}'] >= 1
    assert figures[f'allocator_build_info{{version="{allocator.__version__}"}}'] == 1
    assert figures["process_start_time_seconds"] > 0
    assert figures['allocator_shard_up{slot="1"}'] == 1
    assert figures['allocator_numbers_left{what="meteor node"}'] > 2**19


def figures_of(service: Served) -> dict[str, float]:
    lines = service.get("/metrics").body.decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_what_callers_make_up_makes_no_series(embedded):
    before = len(figures_of(embedded))
    for number in range(50):
        embedded.post(f"/v1/tags/{'no-'}{number}-!/ids")
        embedded.get(f"/v1/tags/unknown-{number}")
        embedded.post(f"/v1/unknown-{number}")
        embedded.ask(f"METHOD{number}", f"/v1/tags/unknown-{number}/ids")

    after = figures_of(embedded)
    # Of tags that other tests drew from, of the kinds of these refusals, and fifteen for each new kind of request.
    assert len(after) <= before + 49 + 5 * 15
    assert not [name for name in after if '"no-' in name or '"unknown-' in name]
