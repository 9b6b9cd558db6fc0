"""Worker numbers over HTTP: what a client in any language sends, who may, and what an operator sees."""

from typing import Any

import pytest
from support.kit import backend_of, now_ms, run
from support.processes.patience import until
from support.service.served import Guarded, Served

from allocator import Allocator
from allocator.errors import AccessDenied, LeaseLost, NodeIdsExhausted
from allocator.schemes.worker_number_lease import NumberClaim


def test_a_number_is_leased_renewed_and_given_back(guarded, service):
    def post(**body: Any) -> Any:
        return service.post("/v1/workers/billing", token=guarded.admin, json={"seconds": 60, **body})

    def put(**body: Any) -> Any:
        return service.put("/v1/workers/billing", token=guarded.admin, json={"seconds": 60, **body})

    now = now_ms()
    leased = post(now=now, bits=5, host="web-1", process=7)
    assert (leased.status, leased.headers["Cache-Control"]) == (200, "no-store")
    assert {name: leased.json[name] for name in ("space", "number", "until")} == {
        "space": "billing",
        "number": 0,
        "until": now + 60_000,
    }
    held = {name: leased.json[name] for name in ("number", "holder")}
    assert post(now=now, bits=5).json["number"] == 1

    renewed = put(now=now + 1, **held)
    assert (renewed.status, renewed.json) == (200, {**leased.json, "until": now + 60_001})
    assert put(now=now + 2, **held, release=True).json == {**leased.json, "until": now + 2}
    lost = put(now=now + 3, **held)
    assert (lost.status, lost.json["error"]) == (409, "LeaseLost")


def test_what_is_no_request_is_refused(guarded, service):
    """What the fields may be is judged by the tests of the lease rule."""
    number, holder = {"number": 1}, {"holder": "0" * 32}
    for method, body, detail in (
        ("POST", {"seconds": None}, "seconds: "),
        ("POST", {"now": None}, "now: "),
        ("POST", {"seconds": 601}, "seconds: "),
        ("POST", {"host": "a\nb"}, "host: "),
        ("POST", {"bits": 32}, "bits: "),
        ("POST", {"now": 2**53}, "the clock of this machine is"),
        ("POST", number | holder, "unknown parameter 'number'"),
        ("PUT", number, "parameter holder is missing"),
        ("PUT", holder, "parameter number is missing"),
        ("PUT", number | {"holder": "me"}, "holder: "),
        ("PUT", number | holder | {"release": 1}, "release: "),
        *(("PUT", holder | {"number": odd}, "number: ") for odd in ("seven", "+7", "\u0663", 2**32, -1, True, 7.0)),
        ("PUT", number | holder | {"bits": 10}, "unknown parameter 'bits'"),
    ):
        form = {"seconds": 60, "now": now_ms(), **body}
        refused = service.ask(method, "/v1/workers/other", token=guarded.admin, json=form)
        assert (refused.status, detail in refused.json["detail"]) == (400, True), (body, refused.json)


def test_a_token_is_good_for_the_spaces_that_its_patterns_name(guarded, service):
    drawing = guarded.make("drawing", tags=("mine-*",))
    reading = guarded.make("reading", "read", tags=("*",))

    def lease(space: str, token: str | None) -> int:
        found: int = service.post(f"/v1/workers/{space}", token=token, json={"seconds": 60, "now": now_ms()}).status
        return found

    assert lease("mine-1", drawing) == 200
    assert lease("yours", drawing) == 403
    assert lease("mine-1", reading) == 403
    assert lease("mine-1", None) == 401
    with Allocator(service.address, token=drawing) as ids, pytest.raises(AccessDenied), ids.worker("yours"):
        pass


def test_a_client_renews_over_http(guarded, service):
    with Allocator(service.address, token=guarded.admin) as ids, ids.worker("renewed", seconds=9) as held:
        assert until(lambda: renewals(guarded, "renewed") > 0)
        assert not held.lost


def renewals(guarded: Guarded, name: str) -> int:
    (space,) = (one for one in guarded.database.worker_spaces() if one.name == name)
    return space.held[0].renewals


def test_the_verbs_of_a_client_are_those_of_a_database(guarded, service):
    with Allocator(service.address, token=guarded.admin) as ids:
        backend = backend_of(ids)
        lease, _ = (backend.lease_number(NumberClaim("verbs", 1, 60_000, now_ms(), "", "hé\n", 1)) for _ in range(2))
        with pytest.raises(NodeIdsExhausted):
            backend.lease_number(NumberClaim("verbs", 1, 60_000, now_ms(), ""))
        backend.renew_number(lease, now_ms())
        backend.release_number(lease, now_ms())
        for verb in (backend.renew_number, backend.release_number):
            with pytest.raises(LeaseLost):
                verb(lease, now_ms())


# -- what an operator sees


@pytest.mark.statements
def test_who_holds_what_is_listed(fresh):
    assert run(fresh, "worker", "list").out == "no number was leased yet\n"
    with Allocator(fresh) as ids, ids.worker("pods", bits=2, seconds=90) as held:
        lines = run(fresh, "worker", "list").out.splitlines()
        (space,) = run(fresh, "worker", "list", "--json").json["spaces"]

        assert lines[0] == "pods: 1 held, 3 free, leases of 90 s"
        assert lines[1].split() == ["number", "host", "process", "until"]
        assert lines[2].split()[0] == str(held.number) == "0"
        assert {name: space[name] for name in ("space", "bits", "seconds", "free")} == {
            "space": "pods",
            "bits": 2,
            "seconds": 90.0,
            "free": 3,
        }
        assert space["held"][0]["process"] > 0
    assert run(fresh, "worker", "list").out == "pods: 0 held, 4 free, leases of 90 s\n"


def test_a_space_has_figures(tmp_path):
    with Guarded(str(tmp_path)) as guarded:
        guarded.database.lease_number(NumberClaim("mine", 2, 600_000, now_ms(), "a"))
        with Served(guarded.url) as service:
            line = 'allocator_worker_numbers{space="mine",state="free"} 3.0'
            assert until(lambda: line in service.get("/metrics", token=guarded.admin).body.decode())
            assert 'state="held"} 1.0' in service.get("/metrics", token=guarded.admin).body.decode()
