"""The console over HTTP: who may come in, who sees what, and what every page says to a browser."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from time import time_ns

import pytest
from sqlalchemy import create_engine, insert
from support.faults.tcp_proxy import Wire
from support.processes.patience import until
from support.servers.administrator import execute
from support.service.console_user import Seat
from support.service.guarded import Guarded
from support.service.served import Served

from allocator.database.schema.tables import segment
from allocator.database.verbs import node_and_snowflake_rows, segments
from allocator.schemes.tag import Tag
from allocator.schemes.worker_number_lease import NumberClaim

PAGES = ("/", "/console/tags/seen-1", "/console/fleet", "/console/doctor")
MANY = 10_000
FIRST_PAGE = 200 * 1024
EVIL = "<script>alert(1)</script>"


class Crowded(Guarded):
    """Many tags, and one token of each kind."""

    def prepare(self) -> None:
        self.reader = self.make("reader", "read", tags=("seen-*",))
        self.drawer = self.make("drawer", "draw")
        fill(self.url)
        for name in ("seen-1", "seen-2", "hidden-1"):
            self.database.create_tag(Tag(name), has_start=True)
        self.database.lease_number(NumberClaim("pods", 2, 600_000, time_ns() // 1_000_000, "a", f"{EVIL}.example", 7))
        self.database.run(
            node_and_snowflake_rows.register, f"{EVIL}.example", 7, "1<b>", datetime(2026, 1, 2, tzinfo=UTC)
        )


def fill(url: str) -> None:
    """Tags in one transaction, since each alone would be a write to the disk."""
    engine = create_engine(url)
    with engine.begin() as connection:
        rows = [values_of(f"tag-{number:05}", number) for number in range(MANY)]
        connection.execute(insert(segment), rows)
    engine.dispose()


def values_of(name: str, value: int) -> dict[str, object]:
    tag = Tag(name)
    settings = {"step": tag.step, "max_step": tag.max_step, "id_limit": tag.limit}
    return {"tag": name, "max_value": value, **settings}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    made = Crowded(str(tmp_path_factory.mktemp("console")), admin="operations")
    yield made
    made.close()


@pytest.fixture(scope="module")
def open_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(f"sqlite:///{tmp_path_factory.mktemp('open')}/ids.db") as service:
        yield service


@pytest.fixture
def seat(guarded: Guarded) -> Seat:
    return Seat(guarded.service)


@pytest.fixture
def admin(guarded: Guarded, seat: Seat) -> Seat:
    seat.sign_in(guarded.admin)
    return seat


def rows_in(page: str) -> list[tuple[str, ...]]:
    """The texts of each row of a table."""
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page)
    return [(name, *re.findall(r"<td[^>]*>(.*?)</td>", cells)) for name, cells in rows]


def tags_in(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/console/tags/([^"]+)"', page)


# -- coming in


def test_without_a_token_every_page_leads_to_the_sign_in_and_back(seat):
    for path in PAGES:
        answer = seat.get(path)
        assert answer.status == 303, path
        assert answer.headers["Location"].startswith("/console/sign-in")
    assert seat.get("/?q=a").headers["Location"].endswith("?next=%2F%3Fq%3Da")
    part = seat.get("/", HX_Request="true")
    assert (part.status, part.headers["HX-Redirect"]) == (401, "/console/sign-in")
    assert seat.get("/console/sign-in").status == 200


def test_the_cookie_is_kept_from_scripts_and_other_sites_and_holds_no_token(guarded, seat):
    answer = seat.sign_in(guarded.admin, "/console/fleet")
    said = answer.headers["Set-Cookie"].lower()

    assert (answer.status, answer.headers["Location"]) == (303, "/console/fleet")
    assert "httponly" in said
    assert "samesite=strict" in said
    assert "path=/;" in said
    assert "max-age=28800" in said
    assert guarded.admin.removeprefix("allocator_") not in answer.headers["Set-Cookie"]


def test_behind_a_proxy_with_https_the_cookie_is_bound_to_it_and_to_the_host(guarded, seat):
    headers = {"Sec-Fetch-Site": "same-origin", "X-Forwarded-For": "192.0.2.7", "X-Forwarded-Proto": "https"}
    said = seat.send("/console/sign-in", {"token": guarded.admin}, headers).headers["Set-Cookie"]

    assert said.startswith("__Host-allocator-")
    assert "; secure" in said.lower()
    assert "domain" not in said.lower()


def test_every_worker_takes_the_session(guarded, admin):
    """Each request on a connection of its own, so that both are asked."""
    assert {admin.get("/console/tags/seen-1", Connection="close").status for _ in range(12)} == {200}


def test_a_token_that_is_not_known_is_refused_in_words(seat):
    answer = seat.sign_in("allocator_no-such")

    assert answer.status == 401
    assert "this token is unknown" in answer.body.decode()
    assert "Set-Cookie" not in answer.headers


def test_signing_out_takes_the_cookie_back(admin):
    answer = admin.send("/console/sign-out", {})

    assert (answer.status, answer.headers["Location"]) == (303, "/console/sign-in")
    assert "max-age=0" in answer.headers["Set-Cookie"].lower()


def test_a_session_ends_with_its_token(guarded, seat):
    secret = guarded.make("passing", "read")
    number = next(one.number for one in guarded.tokens.list() if one.name == "passing")
    seat.sign_in(secret)
    assert seat.get("/").status == 200
    guarded.tokens.revoke(number)

    assert until(lambda: seat.get("/", Connection="close").status == 303)


def test_a_session_is_good_for_no_id(guarded, admin):
    """The API knows bearer tokens alone, so that no page of a foreign site can draw with a cookie."""
    for method, path in (("POST", "/v1/tags/seen-1/ids"), ("GET", "/v1/tags"), ("GET", "/metrics")):
        assert guarded.service.ask(method, path, Cookie=admin.cookie, Sec_Fetch_Site="same-origin").status == 401


def test_without_a_token_configured_it_is_open_to_this_machine_by_its_own_names(open_service):
    """A page of the web cannot look at it, also by a name that it has pointed here."""
    assert open_service.get("/").status == 200
    for headers in (
        {"Host": f"evil.example:{open_service.port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "https://evil.example"},
        {"X_Forwarded_For": "203.0.113.9"},
    ):
        assert open_service.get("/", **headers).status == 303
        assert open_service.get("/console/totals", **headers).status == 303


# -- what a browser is told


def test_the_first_page_stands_where_a_number_in_the_database_is_none(tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"
    with Served(url) as service:
        service.post("/v1/tags/order/ids")
        service.post("/v1/tags/line/ids")
        execute(url, "UPDATE allocator_segment SET max_value = 1007.5 WHERE tag = 'order'")
        page = Seat(service).text("/")

    assert "line" in page
    assert "1007" not in page  # left out, and logged


def test_every_page_has_its_headers(admin):
    for path in (*PAGES, "/console/tags/no-such", "/console/sign-in"):
        headers = admin.get(path).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["Content-Security-Policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["frame-ancestors"] == "'none'"
        assert {policy[name] for name in ("script-src", "style-src", "connect-src", "form-action")} == {"'self'"}
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"


def test_no_page_has_script_or_style_of_its_own(admin):
    for path in PAGES:
        page = admin.get(path).body.decode()
        assert not re.search(
            r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:|https?://",
            page.lower().replace("http://127.0.0.1", "").replace("http://www.w3.org", ""),
        ), path


def test_files_are_asked_for_again_only_after_an_update(admin):
    page = admin.get("/").body.decode()
    names = re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page)
    assert len(set(names)) == 7
    for name in names:
        answer = admin.get(name)
        assert answer.status == 200
        assert admin.get(name, If_None_Match=answer.headers["ETag"]).status == 304
    assert admin.get(max(names, key=len), Accept_Encoding="gzip").headers["Content-Encoding"] == "gzip"
    assert {admin.get(f"/console/static/{name}").status for name in ("", "none.js", "../views.py")} == {404}


def test_the_first_page_of_ten_thousand_tags_is_small(admin):
    """As a browser asks for it that has nothing yet: page, scripts and styles."""
    assert until(lambda: f"of {MANY + 3:,}".replace(",", "\u202f") in admin.text("/"))  # once they were read
    page = admin.get("/")
    files = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', page.body.decode()))

    assert len(page.body) + sum(len(admin.get(name).body) for name in files) < FIRST_PAGE


# -- what is shown


def test_ten_thousand_tags_are_found_sorted_and_paged(admin):
    assert tags_in(admin.text("/?q=tag-0999"))[:3] == ["tag-09990", "tag-09991", "tag-09992"]
    assert tags_in(admin.text("/?q=TAG-*7")) == [f"tag-{number:05}" for number in range(7, 500, 10)]
    assert tags_in(admin.text("/?sort=max_value"))[:2] == ["tag-09999", "tag-09998"]
    assert tags_in(admin.text("/?q=tag-&page=2"))[0] == "tag-00050"
    assert tags_in(admin.text("/?q=tag-&page=99999"))[-1] == "tag-09999"
    assert "No tag matches <q>nothing-like-this</q>" in admin.text("/?q=nothing-like-this")


def test_a_part_of_the_list_is_a_part(admin):
    def part() -> str:
        return admin.text("/?q=seen-1", HX_Request="true")

    assert until(lambda: tags_in(part()) == ["seen-1"])  # a page does not wait long for the list
    assert "<html" not in part()


def test_looking_changes_and_makes_nothing(guarded, admin):
    before = guarded.database.run(segments.fetch, "seen-1")
    for path in (*PAGES, "/console/totals?tag=seen-1", "/console/totals?tag=made-up"):
        admin.get(path)
    assert admin.get("/console/tags/made-up").status == 404
    assert admin.get("/console/sign-out").status == 405

    assert guarded.database.run(segments.fetch, "seen-1") == before
    assert guarded.database.run(segments.fetch, "made-up") is None


def test_what_comes_from_outside_is_escaped(guarded, admin):
    def page(path: str) -> str:
        return admin.get(path.replace("<", "%3C").replace(">", "%3E")).body.decode()

    for path in (f"/?q={EVIL}", "/console/fleet", f"/console/sign-in?next=/{EVIL}"):
        assert until(lambda path=path: html.escape(EVIL, quote=False) in page(path)), path
        assert EVIL not in page(path), path
    assert "1<b>" not in page("/console/fleet")


def test_the_fleet_and_the_doctor_are_shown_to_who_may_do_everything(admin):
    assert until(lambda: "serving" in admin.text("/console/fleet"))
    fleet = admin.text("/console/fleet")

    assert f"{EVIL}.example" in fleet
    assert "Meteor nodes" in fleet
    assert "pods</span>: 1 held, 3 free, leases of 600 seconds" in fleet
    assert until(lambda: "Checking…" not in admin.text("/console/doctor"))
    assert re.search(r"\bfindings?, checked ", admin.text("/console/doctor"))


# -- who sees what


def test_a_reader_sees_its_own_tags_alone(guarded, seat):
    seat.sign_in(guarded.reader)
    assert until(lambda: tags_in(seat.text("/")) == ["seen-1", "seen-2"])
    page = seat.text("/")
    assert "hidden-1" not in page
    assert seat.get("/console/tags/seen-1").status == 200
    page = seat.text("/console/tags/seen-1")
    assert "<dt>Failover gap</dt><dd>auto</dd>" in page
    for path in (
        "/console/tags/hidden-1",
        "/console/tags/no-such",
        "/console/totals",
        "/console/totals?tag=hidden-1",
        "/console/fleet",
        "/console/doctor",
    ):
        assert seat.get(path).status == 403, path


def test_who_only_draws_is_told_so(guarded, seat):
    seat.sign_in(guarded.drawer)

    assert seat.get("/").status == 403
    page = seat.get("/").body.decode()
    assert "may not read tags" in page
    assert "Show tags" not in page, "a link to this page itself"


def test_who_draws_from_a_tag_sees_its_settings_and_no_figures(guarded, seat):
    """As by the API."""
    seat.sign_in(guarded.drawer)
    for part in ({}, {"HX_Request": "true"}):
        page = seat.text("/console/tags/seen-1", **part)
        assert "Max value" in page
        assert "has ids of this tag in memory" not in page
        assert "/console/totals" not in page
    assert seat.get("/console/totals?tag=seen-1").status == 403
    seat.sign_in(guarded.reader)
    assert "has ids of this tag in memory" in seat.text("/console/tags/seen-1")
    assert "/console/totals" in seat.text("/console/tags/seen-1")
    assert seat.get("/console/totals?tag=seen-1").status == 200


# -- from other sites


def test_signing_in_and_out_must_come_from_our_own_page(guarded, admin):
    host = f"127.0.0.1:{guarded.service.port}"
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "null"}, {}):
        for path in ("/console/sign-in", "/console/sign-out"):
            assert admin.send(path, {"token": guarded.admin}, headers).status == 403, (path, headers)
    assert admin.send("/console/sign-out", {}, {"Origin": f"http://{host}"}).status == 303


def test_nothing_can_be_changed(guarded, admin):
    for path in PAGES:
        assert admin.send(path, {"step": "5"}).status == 405, path
    assert admin.send("/console/static/console.css", {}).status == 405


# -- without it, and without the database


def test_a_client_that_accepts_json_alone_is_led_to_the_description(open_service):
    assert open_service.get("/", Accept="application/json").headers["Location"] == "/openapi.json"


def test_while_the_database_is_away_what_is_in_memory_is_shown(shared_database, tag):
    with Wire(shared_database("postgres")) as wire, Served(wire.url, options=("--timeout", "1")) as service:
        seat = Seat(service)
        service.post(f"/v1/tags/{tag}/ids")  # and nobody has looked yet: memory alone knows the tag
        wire.refuse()
        assert until(lambda: "The database does not answer" in seat.text(f"/?q={tag}"))
        assert until(lambda: tag in tags_in(seat.text(f"/?q={tag}")))
        one = seat.text(f"/console/tags/{tag}")
        assert "The database does not answer" in one
        assert "Memory lasts" in one
        assert re.search("not reached|did not answer", seat.text("/console/fleet"))
        assert seat.get("/console/doctor").status == 200
