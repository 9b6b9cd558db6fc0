"""The routes of Leaf and tinyid, asked the way their own clients ask."""

from collections.abc import Callable
from urllib.parse import urlencode

import pytest
from support.distinct import distinct
from support.servers.fleets import on_one_of_each
from support.service.served import Guarded, Reply, Served

FORM = "application/x-www-form-urlencoded"


@pytest.fixture
def service(served: Callable[..., Served]) -> Served:
    """What is asked and answered is the same before any database."""
    return served("sqlite", "--compat", "leaf,tinyid")


@pytest.fixture
def known(service: Served, tag: str) -> str:
    """A tag that exists; neither server makes one by being asked."""
    service.put(f"/v1/tags/{tag}", json={"step": 100, "max_step": 100})
    return tag


@pytest.fixture
def tinyid(service: Served) -> Callable[..., Reply]:
    def ask(name: str, **fields: object) -> Reply:
        """As tinyid-client does."""
        return service.post(f"/tinyid/id/{name}?{urlencode({'token': 'any', **fields})}", Content_Type=FORM)

    return ask


# -- Leaf


def test_leaf_gives_a_number_and_nothing_else(service, known):
    answers = [service.get(f"/api/segment/get/{known}") for _ in range(3)]

    assert [answer.body for answer in answers] == [b"1", b"2", b"3"]
    assert answers[0].headers["Content-Type"] == "text/plain;charset=UTF-8"
    assert answers[0].headers["Cache-Control"] == "no-store"


def test_leaf_says_500_for_a_key_that_is_unknown(service, tag):
    for key in (tag, "a%20b", "x" * 100):
        refused = service.get(f"/api/segment/get/{key}")
        assert refused.status == 500
        assert refused.json["message"] == "Result{id=-2, status=EXCEPTION}"
        assert refused.json["exception"].endswith(".LeafServerException")
        assert refused.headers["Cache-Control"] == "no-store"
    assert service.get(f"/v1/tags/{tag}").status == 404


def test_a_slash_may_stand_behind(service, tinyid, known):
    assert service.get(f"/api/segment/get/{known}/").body == b"1"
    assert service.post(f"/api/segment/get/{known}/").body == b"2"
    assert int(service.get("/api/snowflake/get/a/").body) > 0
    assert service.get("/api/segment/get/").status == 404
    assert service.get(f"/api/segment/get/{known}//").status == 404
    assert tinyid("nextIdSimple/", bizType=known).body == b"3"
    assert tinyid("nextSegmentId/", bizType=known).json["code"] == 200


def test_head_draws_nothing(service, known):
    for path in (f"/api/segment/get/{known}", "/api/snowflake/get/a", f"/tinyid/id/nextIdSimple?bizType={known}"):
        assert (service.ask("HEAD", path).status, path) == (405, path)
    assert service.get(f"/api/segment/get/{known}").body == b"1"


def test_leaf_decodes_a_key_and_tells_the_path_as_it_was_sent(service, known):
    encoded = "".join(f"%{ord(letter):02x}" for letter in known)
    assert service.get(f"/api/segment/get/{encoded}").body == b"1"
    for path in ("/api/segment/get/a%20b", "/api/segment/get/%C3%A9/", "/api/segment/get/%41?x=1"):
        assert service.get(path).json["path"] == path.partition("?")[0]


def test_leaf_says_500_for_a_tag_that_has_no_ids_left(service, known):
    service.put(f"/v1/tags/{known}", json={"limit": 100, "start_after": 100})

    assert service.get(f"/api/segment/get/{known}").json["message"] == "Result{id=-3, status=EXCEPTION}"


def test_leaf_gives_snowflakes_whatever_the_key(service):
    drawn = [int(service.get(f"/api/snowflake/get/{key}").body) for key in ("a", "b", "%20", "a")]

    assert distinct(drawn)
    assert sorted(drawn) == drawn


# -- tinyid


def test_tinyid_is_asked_in_three_ways(service, known):
    form = urlencode({"token": "any", "bizType": known, "batchSize": 2})
    path = "/tinyid/id/nextIdSimple"

    assert service.get(f"{path}?{form}").body == b"1,2"
    assert service.post(f"{path}?{form}", Content_Type=FORM).body == b"3,4"
    assert service.post(path, body=form.encode(), Content_Type=FORM).body == b"5,6"


def test_tinyid_gives_ids_as_json(tinyid, known):
    assert tinyid("nextId", bizType=known).body == b'{"data":[1],"code":200,"message":""}'
    assert tinyid("nextId", bizType=known, batchSize=3).json["data"] == [2, 3, 4]
    assert tinyid("nextId", bizType=known, batchSize="").json["data"] == [5]
    assert tinyid("nextId", bizType=known, batchSize=0).json == {"data": [], "code": 200, "message": ""}
    assert tinyid("nextId", bizType=known).headers["Cache-Control"] == "no-store"
    assert tinyid("nextIdSimple", bizType=known, batchSize=-5).body == b""


def test_tinyid_gives_a_thousand_ids_at_most(tinyid, known):
    """Its own server has a maximum too, and is silent about the rest."""
    for asked, given in ((500, 500), (1000, 1000), (2_000_000_000, 1000)):
        assert distinct(tinyid("nextId", bizType=known, batchSize=asked).json["data"]) == given
    assert len(tinyid("nextIdSimple", bizType=known, batchSize=1001).body.split(b",")) == 1000


def test_tinyid_gives_segments_as_its_client_counts_them(tinyid, service, known):
    first = tinyid("nextSegmentIdSimple", bizType=known).body
    second = tinyid("nextSegmentId", bizType=known).json

    assert first == b"0,20,100,1,0"
    data = {"maxId": 200, "loadingId": 120, "currentId": 100, "delta": 1, "remainder": 0}
    assert second == {"data": data, "code": 200, "message": ""}
    assert list(second["data"]) == list(data)
    assert ids_of(first.decode()) == list(range(1, 101))
    assert service.post(f"/v1/tags/{known}/ids").ids == ["201"]


def ids_of(text: str) -> list[int]:
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


def test_tinyid_refuses_with_a_code_and_status_200(tinyid, tag):
    for wrong in (tag, "a b", "x" * 100):
        assert tinyid("nextId", bizType=wrong).json == {
            "data": None,
            "code": 6,
            "message": f"can not find biztype:{wrong}",
        }
        for name in ("nextIdSimple", "nextSegmentIdSimple"):
            refused = tinyid(name, bizType=wrong)
            assert (refused.status, refused.body) == (200, b"")
    for missing in ({}, {"bizType": ""}):
        assert tinyid("nextId", **missing).json == {"data": None, "code": 5, "message": "token is error"}


def test_tinyid_refuses_a_batch_that_is_no_number(tinyid, known):
    assert [tinyid(name, bizType=known, batchSize="x").status for name in ("nextId", "nextIdSimple")] == [400, 400]


@on_one_of_each
def test_the_segments_of_a_fleet_go_to_the_clients_of_tinyid_too(fleet):
    urls = fleet(2)
    with Served(*urls, options=("--compat", "tinyid")) as service:
        service.put("/v1/tags/order", json={"step": 10, "max_step": 10})
        ask = "/tinyid/id/nextSegmentIdSimple?bizType=order&token=x"
        drawn = [number for _ in range(6) for number in ids_of(service.get(ask).body.decode())]
        drawn += [int(number) for number in service.post("/v1/tags/order/ids?count=50").ids]

    assert distinct(drawn) == 110
    assert {number % 2 for number in drawn} == {0, 1}


def test_where_a_token_is_needed_these_routes_need_it_too(tmp_path):
    with Guarded(str(tmp_path), "--compat", "leaf,tinyid") as guarded:
        secret = guarded.make("old", "draw", "administer", tags=("order", "@snowflake"))
        service = guarded.service
        service.put("/v1/tags/order", token=secret, json={})
        assert service.get("/api/segment/get/order").status == 401
        assert service.get("/api/segment/get/order", token=secret).body == b"1"
        assert service.get("/api/segment/get/other", token=secret).status == 403
        assert service.get("/api/snowflake/get/x", token=secret).status == 200
        assert service.get("/tinyid/id/nextIdSimple?bizType=order&token=wrong").body == b""
        assert service.get("/tinyid/id/nextId?bizType=other&token=" + secret).json["code"] == 5
        assert service.get("/tinyid/id/nextIdSimple?bizType=order&token=" + secret).body == b"2"
        assert service.get("/tinyid/id/nextIdSimple?bizType=order").body == b""
        assert service.get("/tinyid/id/nextIdSimple?bizType=order", token=secret).body == b"3"  # which a proxy adds
        assert secret not in service.log()


def test_without_the_option_there_are_no_such_routes(served):
    assert served("sqlite").get("/api/segment/get/order").status == 404
