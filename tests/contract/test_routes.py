"""The routes of a service, as a process: what they give and refuse, and that /openapi.json describes them truly."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from support.distinct import distinct
from support.kit import now_ms, run
from support.processes.patience import until
from support.rules import rule
from support.servers.fleets import on_one_of_each
from support.service.served import Served, fill
from support.transcripts import wrong_answers

import allocator
from allocator import Allocator, inspect_id
from allocator.fleet.tag_administration import Tags
from allocator.schemes.shared.argument_checks import MAX_STEP
from allocator.schemes.tag import Tag
from allocator.service.served_ids import page_of
from allocator.testing import MemoryBackend

ON_EACH_DATABASE = {
    "ids of a tag follow each other": """
POST /v1/tags/TAG/ids -> 200 application/json … no-store … = {"tag":"TAG","ids":["1"]}
POST /v1/tags/TAG/ids?count=3 -> 200 no-store … = {"tag":"TAG","ids":["2","3","4"]}
POST /v1/tags/TAG/ids -> 200 no-store … = {"tag":"TAG","ids":["5"]}
POST /v1/tags/TAG/ids -> 200 no-store … = {"tag":"TAG","ids":["6"]}
""",
    "a ticket is a text, since a browser reads 9007199254740993 as …992": """
POST /v1/tickets/TAG -> 200 {"type":"TAG","id":"
""",
    "a segment is the caller's alone": """
POST /v1/tags/TAG/segments?size=500 -> 200 = {"tag":"TAG","start":"1","stop":"501","step":"1"}
POST /v1/tags/TAG/segments -> 200 = {"tag":"TAG","start":"501","stop":"1501","step":"1"}
POST /v1/tags/TAG/ids -> 200 ["1501"]
""",
    "a tag is created and changed": """
PUT /v1/tags/TAG {"step":10,"limit":"1000"} -> 201
  = {"tag":"TAG","max_value":"0","step":10,"max_step":10,"limit":"1000","failover_gap":"auto"}
PUT /v1/tags/TAG {"step":20,"max_step":20} -> 200
  = {"tag":"TAG","max_value":"0","step":20,"max_step":20,"limit":"1000","failover_gap":"auto"}
GET /v1/tags/TAG -> 200 = {"tag":"TAG","max_value":"0","step":20,"max_step":20,"limit":"1000","failover_gap":"auto"}
""",
    "health and readiness": """
GET /healthz -> 200 = {"status":"alive"}
GET /readyz -> 200 = {"status":"ready"}
GET /api/segment/get/order -> 404
""",
}
EMBEDDED = {
    "a number beyond what a browser reads is text": """
PUT /v1/tags/TAG {"start_after":9007199254740992} -> 201
POST /v1/tags/TAG/ids -> 200 ["9007199254740993"]
""",
    "conditions say whether a tag is created or changed": """
PUT /v1/tags/TAG {} <If-Match: *> -> 404
PUT /v1/tags/TAG {} <If-None-Match: *> -> 201
PUT /v1/tags/TAG {} <If-None-Match: *> -> 409 TagExists
PUT /v1/tags/TAG {} <If-Match: *> -> 200
PUT /v1/tags/TAG {} <If-Match: *> <If-None-Match: *> -> 400
PUT /v1/tags/TAG {"step":5} <If-Match: "x"> -> 400 If-Match must be *
PUT /v1/tags/TAG {"step":5} <If-None-Match: W/"x"> -> 400 If-None-Match must be *
GET /v1/tags/TAG -> 200 "step":10,
""",
    "a tag that has given its last id is gone": """
PUT /v1/tags/TAG {"limit":3} -> 201
POST /v1/tags/TAG/ids?count=3 -> 200 ["1","2","3"]
POST /v1/tags/TAG/ids -> 410 Exhausted
""",
    "a batch that memory does not hold costs nothing when it cannot be had": """
PUT /v1/tags/TAG {"limit":50,"step":10} -> 201
POST /v1/tags/TAG/ids -> 200 ["1"]
POST /v1/tags/TAG/ids?count=60 -> 400 InvalidCount … count must be at most 49, the ids left of tag
POST /v1/tags/TAG/ids?count=49 -> 200 ["2","3", … "49","50"]
POST /v1/tags/TAG/ids -> 410
""",
    "an id is taken apart, into texts": """
GET /v1/inspect/5016762319896585?scheme=meteor -> 200
  "fields":{"second":"292014","node":"0","sequence":"1","random":"1"}
GET /v1/inspect/9007199254740993?scheme=segment -> 200 "fields":{"value":"9007199254740993"}
GET /v1/inspect/175928847299117063?layout=discord&epoch=0 -> 200 "scheme":"discord" … "time":"1971-05-01T11:18:25.796
GET /v1/inspect/a_b -> 400 InvalidId
GET /v1/inspect/5?layout=baidu -> 400
""",
    "a wrong path or method is a problem too": """
GET /v1/tags/order/ids -> 405 allow: … "status":405
TRACE /v1/meteor -> 405 allow: … "status":405
POST /v1/nothing -> 404 "status":404
POST /v1/tags/order/ids/ -> 404 "status":404
GET /docs/../../etc/passwd -> 404
""",
    "a count, a query and a body that cannot be are refused": """
POST /v1/meteor?count=1001 -> 400 application/problem+json … InvalidCount … count must be 1 to 1000, got 1001
POST /v1/objectids?count= -> 400
POST /v1/tags/TAG/ids?count=%00 -> 400
PUT /v1/tags/TAG { -> 400
PUT /v1/tags/TAG {"step":10,"max_step":5} -> 400
PUT /v1/tags/TAG [[[[[ -> 400 must be a JSON object
GET /v1/tags/TAG -> 404
POST /v1/tags/TAG/ids?size=5 -> 400
POST /v1/tags/TAG/ids?count=1&x=2 -> 400
POST /v1/tags/TAG/ids?Count=1 -> 400
POST /v1/tags/TAG/ids {"count":5} -> 400
POST /v1/tags/TAG/ids {} -> 200 ["1"]
POST /v1/tags/TAG/ids -> 200 ["2"]
""",
    "what is no request of a worker number is refused": """
POST /v1/workers/other {"seconds":60,"now":9007199254740992} -> 400 the clock of this machine is
POST /v1/workers/other {"seconds":60,"now":NOW,"bits":32} -> 400 bits:
POST /v1/workers/other {"seconds":60,"now":NOW,"format":"1/41/5/5/12 0"} -> 400 and no other space has a format
PUT /v1/workers/other {"seconds":60,"now":NOW,"number":-1,"holder":"HOLDER"} -> 400 number:
""",
    "Leaf gives a number and nothing else, and draws nothing for HEAD": """
PUT /v1/tags/TAG {"step":100} -> 201
GET /api/segment/get/TAG -> 200 text/plain;charset=UTF-8 … no-store … = 1
HEAD /api/segment/get/TAG -> 405
HEAD /api/snowflake/get/a -> 405
GET /api/snowflake/get/a/ -> 200
HEAD /tinyid/id/nextIdSimple?bizType=TAG -> 405
POST /api/segment/get/TAG/ -> 200 = 2
GET /api/segment/get/ENCODED -> 200 = 3
GET /api/segment/get/ -> 404
GET /api/segment/get/TAG// -> 404
""",
    "To clients of Leaf and tinyid a key that is unknown, or has no ids left, is what it is to all": """
GET /api/segment/get/TAG -> 404 application/problem+json
GET /tinyid/id/nextId?token=any&bizType=TAG -> 404
GET /tinyid/id/nextSegmentIdSimple?token=any&bizType=TAG -> 404
GET /tinyid/id/nextId?token=any -> 400 bizType is needed
PUT /v1/tags/TAG {"limit":100,"start_after":100} -> 201
GET /api/segment/get/TAG -> 410
""",
    "tinyid is asked in three ways": """
PUT /v1/tags/TAG {"step":100} -> 201
GET /tinyid/id/nextIdSimple?token=any&bizType=TAG&batchSize=2 -> 200 = 1,2
POST /tinyid/id/nextIdSimple?token=any&bizType=TAG&batchSize=2 <Content-Type: FORM> -> 200 = 3,4
POST /tinyid/id/nextIdSimple token=any&bizType=TAG&batchSize=2 <Content-Type: FORM> -> 200 = 5,6
GET /tinyid/id/nextIdSimple/?token=any&bizType=TAG -> 200 = 7
GET /tinyid/id/nextIdSimple?token=any&bizType=TAG&batchSize=-5 -> 200 =
""",
    "tinyid gives ids as JSON": """
PUT /v1/tags/TAG {"step":100} -> 201
GET /tinyid/id/nextId?token=any&bizType=TAG -> 200 no-store … = {"data":[1],"code":200,"message":""}
GET /tinyid/id/nextId?token=any&bizType=TAG&batchSize=3 -> 200 "data":[2,3,4]
GET /tinyid/id/nextId?token=any&bizType=TAG&batchSize=0 -> 200 = {"data":[],"code":200,"message":""}
GET /tinyid/id/nextId?token=any&bizType=TAG&batchSize=x -> 400
""",
    "tinyid gives segments as its client counts them": """
PUT /v1/tags/TAG {"step":100,"max_step":100} -> 201
GET /tinyid/id/nextSegmentIdSimple?token=any&bizType=TAG -> 200 = 0,20,100,1,0
GET /tinyid/id/nextSegmentIdSimple/?token=any&bizType=TAG -> 200 = 100,120,200,1,0
POST /v1/tags/TAG/ids -> 200 ["201"]
""",
}


@pytest.fixture
def service(kind: str, served: Callable[..., Served]) -> Served:
    return served(kind)


@pytest.fixture
def embedded(served: Callable[..., Served]) -> Served:
    """Where the database makes no difference."""
    return served("sqlite", "--compat", "leaf,tinyid")


@pytest.mark.parametrize("story", ON_EACH_DATABASE)
def test_before_each_database(service, tag, story):
    assert wrong_answers(service, ON_EACH_DATABASE[story], TAG=tag) == []


def test_control_another_answer_is_noticed(embedded):
    for line in ("GET /healthz -> 404", "GET /healthz -> 200 ready", "GET /healthz -> 200 = {}"):
        assert len(wrong_answers(embedded, line)) == 1


@pytest.mark.parametrize("story", EMBEDDED)
def test_before_one(embedded, tag, story):
    encoded = "".join(f"%{ord(letter):02x}" for letter in tag)
    names = {"TAG": tag, "ENCODED": encoded, "NOW": str(now_ms()), "HOLDER": "0" * 32}
    names |= {"FORM": "application/x-www-form-urlencoded", "[[[[[": "[" * 5000}
    assert wrong_answers(embedded, EMBEDDED[story], **names) == []


def test_ids_of_a_scheme_and_tickets_increase(service, tag):
    drawn = {name: service.post(f"/v1/{name}?count=200").ids for name in ("meteor", "snowflake")}
    for name, before in drawn.items():
        drawn[name] = [int(one) for one in (*before, *service.post(f"/v1/{name}?count=100").ids)]
        assert inspect_id(drawn[name][0], scheme=name).readings[0].likely, name
    drawn["ticket"] = [int(service.post(f"/v1/tickets/{tag}").json["id"]) for _ in range(3)]
    for name, found in drawn.items():
        assert distinct(found), name
        assert sorted(found) == found, name


def test_as_many_as_are_asked_for_come_in_one_answer(embedded, tag):
    """Of tinyid no more than a thousand: its own server has a maximum too, and is silent about the rest."""
    drawn = [int(number) for _ in range(3) for number in embedded.post(f"/v1/tags/{tag}/ids?count=1000").ids]
    for asked, given in ((500, 500), (1000, 1000), (2_000_000_000, 1000)):
        more = embedded.get(f"/tinyid/id/nextId?token=x&bizType={tag}&batchSize={asked}").json["data"]
        assert len(more) == given
        drawn += more
    simple = embedded.get(f"/tinyid/id/nextIdSimple?token=x&bizType={tag}&batchSize=1001").body.split(b",")
    objects = embedded.post("/v1/objectids?count=1000").ids

    assert [*drawn, *map(int, simple)] == list(range(1, 6501))
    assert distinct(objects) == 1000
    assert all(re.fullmatch("[0-9a-f]{24}", one) for one in objects)


@rule(7)
def test_a_segment_is_refused_below_what_its_client_has_seen(embedded, tag):
    """Rule 7, by the client's word; and its word stops nobody else."""
    path = f"/v1/tags/{tag}/segments?size=10"
    embedded.post(path)
    refused = embedded.post(f"{path}&seen=1.1.5000")

    assert (refused.status, refused.json["error"]) == (409, "MaxValueWentBack")
    name = refused.headers["X-Request-Id"]
    assert until(lambda: [line for line in embedded.lines() if line.get("request") == name])
    (line,) = (line for line in embedded.lines() if line.get("request") == name)
    assert (line["level"], line["status"]) == ("WARNING", 409)
    assert "the client says: " in line["message"], "this process has not seen them"
    assert embedded.post(f"{path}&seen=1.1.10").json["start"] == "11"
    assert embedded.post(f"/v1/tags/{tag}/ids").status == 200


def of_tinyid(text: str) -> list[int]:
    """What tinyid's client makes of a segment."""
    current, _, last, delta, remainder = map(int, text.split(","))
    for _ in range(delta + 1):
        if current % delta == remainder:
            break
        current += 1
        if current % delta == remainder:
            current -= delta
            break
    return list(range(current + delta, last + 1, delta))


@on_one_of_each
def test_the_segments_of_a_fleet_go_to_the_clients_of_tinyid_too(fleet):
    with Served(*fleet(2), options=("--compat", "tinyid")) as service:
        service.put("/v1/tags/order", json={"step": 10, "max_step": 10})
        ask = "/tinyid/id/nextSegmentIdSimple?bizType=order&token=x"
        drawn = [number for _ in range(6) for number in of_tinyid(service.get(ask).body.decode())]
        drawn += [int(number) for number in service.post("/v1/tags/order/ids?count=50").ids]

    assert of_tinyid("0,20,100,1,0") == list(range(1, 101))
    assert distinct(drawn) == 110
    assert {number % 2 for number in drawn} == {0, 1}


# -- what is refused


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


# -- names of requests, and figures


def test_a_request_has_a_name_in_the_answer_and_in_the_log(embedded, tag):
    for name in ("abc-123", "trace/9:z=="):
        assert embedded.post(f"/v1/tags/{tag}/ids", X_Request_Id=name).headers["X-Request-Id"] == name

    refused = embedded.post("/v1/tags/none/ids?count=0", X_Request_Id="find-me")
    assert refused.json["request"] == refused.headers["X-Request-Id"] == "find-me"
    (line,) = [line for line in embedded.lines() if line.get("request") == "find-me"]
    assert (line["status"], line["error"], line["method"]) == (400, "InvalidCount", "POST")
    odd = embedded.post("/v1/meteor?count=0", X_Request_Id="a b;c")
    assert odd.json["request"] == odd.headers["X-Request-Id"]
    unnamed = [embedded.post(f"/v1/tags/{tag}/ids").headers.get("X-Request-Id", "") for _ in range(3)]
    assert distinct(unnamed) == 3
    assert all(re.fullmatch("[0-9a-f]+-[0-9a-f]+", name) for name in (*unnamed, odd.json["request"]))


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
    assert figures[f'allocator_build_info{{version="{allocator.__version__}"}}'] == 1
    labels = 'method="POST",route="/v1/tags/{tag}/ids",status='
    for name, least in {
        f'allocator_ids_in_memory{{tag="{tag}"}}': 750,
        'allocator_claim_seconds_count{outcome="ok",what="segment"}': 1,
        'allocator_refusals_total{error="InvalidCount",status="400"}': 1,
        f'allocator_request_seconds_count{{{labels}"2xx"}}': 1,
        f'allocator_request_seconds_count{{{labels}"4xx"}}': 1,
        "allocator_ready": 1,
        "process_start_time_seconds": 1,
        'allocator_shard_up{slot="1"}': 1,
        'allocator_numbers_left{what="meteor node"}': 2**19,
    }.items():
        assert figures[name] >= least, name


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


# -- many tags, in pages


def pages(service: Served, **query: Any) -> list[list[str]]:
    """The names of the tags, page by page."""
    found: list[list[str]] = []
    following: str | None = ""
    while following is not None:
        fields = query | ({"after": following} if following else {})
        answer = service.get("/v1/tags?" + "&".join(f"{name}={value}" for name, value in fields.items())).json
        found.append([one["tag"] for one in answer["tags"]])
        following = answer.get("next")
    return found


def test_pages_follow_each_other_byte_by_byte(service, tag):
    """The order of these endings is not that of a language."""
    names = [f"{tag}{ending}" for ending in ("-b", ".a", "0", ":c", "A", "Z", "_d", "a", "b")]
    for name in reversed(names):
        assert service.put(f"/v1/tags/{name}", json={}).status == 201
    found = pages(service, limit=2)
    listed = [name for page in found for name in page]

    assert [len(page) for page in found[:-1]] == [2] * (len(found) - 1)
    assert listed == sorted(set(listed))
    assert [name for name in listed if name in names] == names
    assert service.get(f"/v1/tags?after={tag}Z&limit=1").json["tags"][0]["tag"] == f"{tag}_d"


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with 2,500 tags."""
    url = f"sqlite:///{tmp_path_factory.mktemp('crowded')}/ids.db"
    with Allocator(url) as ids:
        ids.next_id("order")
    fill(url, (f"tag-{number:04}" for number in range(2_499)))
    with Served(url) as service:
        yield service


def test_a_page_has_a_hundred_tags_and_a_thousand_at_most_and_clients_follow_them(crowded):
    first = crowded.get("/v1/tags").json

    assert (len(first["tags"]), first["next"]) == (100, "tag-0098")
    assert [len(page) for page in pages(crowded, limit=1000)] == [1000, 1000, 500]
    assert crowded.get("/v1/tags?after=tag-2498").json == {"tags": []}
    for query in ("limit=0", "limit=1001", "limit=x", "after=", "after=a%20b"):
        assert crowded.get(f"/v1/tags?{query}").status == 400, query
    with Allocator(crowded.address) as ids:
        assert len(ids.tags.list()) == 2_500
    assert len(run(crowded.address, "tags", "list").out.splitlines()) == 2_501


def test_a_reader_of_a_few_tags_learns_no_name_of_others():
    rows = MemoryBackend()
    for number in range(2_500):
        rows.create_tag(Tag(f"hidden-{number}" if number % 500 else f"seen-{number}", 0), rows.settled_shard())

    def names(after: str, limit: int) -> list[str]:
        return [tag.name for tag in page_of(rows.fetch_page, after, limit, lambda name: name.startswith("seen"))]

    assert names("", 2) == ["seen-0", "seen-1000"]
    assert names("seen-1000", 9) == ["seen-1500", "seen-2000", "seen-500"]


def test_pages_of_shards_are_those_of_all_their_tags():
    """Of a tag that two shards have, the greater value is shown, wherever the pages are cut."""
    shards = [MemoryBackend() for _ in range(3)]
    for number, (which, shard) in product(range(24), enumerate(shards)):
        if number % (which + 2) == 0:
            shard.create_tag(Tag(f"tag-{number:02}", 10 * which), shard.settled_shard())
    tags = Tags(lambda: shards, Tag("", 0))  # type: ignore[arg-type, return-value]
    listed = [(tag.name, tag.max_value) for tag in tags.list()]
    for limit in (1, 2, 3, 7, 50):
        found: list[Tag] = []
        while page := page_of(tags._page, found[-1].name if found else "", limit, bool):
            found += page

        assert [(tag.name, tag.max_value) for tag in found] == listed, limit


# -- the description: a generator of requests, good and bad, finds no answer that it forbids


BEYOND_SCHEMAS = "positive_data_acceptance"
"""Bounds between two fields, or to what is claimed, cannot be said in a schema."""
FEW, MANY = ("--phases", "examples,fuzzing", "--max-examples", "3"), ("--max-examples", "10")
"""For each route: its own examples, and this many of each kind; of many, about 600 requests in all."""


@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.nightly)], ids=["few", "many"])
def test_no_answer_contradicts_the_description(guarded, tmp_path, cases):
    program = "import sys; from schemathesis.cli import schemathesis; sys.exit(schemathesis())"
    command = [sys.executable, "-c", program, "run", f"{guarded.service.address}/openapi.json", "--no-color"]
    command += ["--exclude-checks", BEYOND_SCHEMAS, "--seed", "1", "--header", f"Authorization: Bearer {guarded.admin}"]
    done = subprocess.run([*command, *cases], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, "13 selected / 13 total" in done.stdout) == (0, True), done.stdout + done.stderr
    assert guarded.admin not in guarded.service.log()


def test_every_route_is_described(embedded):
    described = embedded.get("/openapi.json").json
    found = [one for methods in described["paths"].values() for one in methods.values()]

    assert len({one["operationId"] for one in found}) == len(found) == 13
    for one in found:
        assert {"200", "400", "401", "403", "404", "429", "503"} <= set(one["responses"])
        assert one["summary"]
    assert described["components"]["schemas"]["Settings"]["properties"]["step"]["maximum"] == MAX_STEP


def test_a_defect_is_never_shown(embedded, served, guarded):
    """Nothing of all this was a mistake of the service."""
    for service in (embedded, served("sqlite"), guarded.service):
        assert "Traceback" not in service.log()
        assert not [line for line in service.lines() if line.get("status") == 500 and "/api/" not in line["path"]]
