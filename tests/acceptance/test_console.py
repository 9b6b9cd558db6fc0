"""The console over HTTP: who may look, who sees what, and what every page says to a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.faults.wire import Wire
from support.processes.patience import until
from support.servers.administrator import execute
from support.servers.databases import with_schema
from support.servers.fleets import made, named
from support.service.browser import DARK, DESKTOP, HURRIED, LIGHT, PHONE, Visit, browser
from support.service.served import Guarded, Seat, Served, basic, fill
from support.transcripts import wrong_answers

from allocator.database.verbs import segments
from allocator.schemes.tag import Tag

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PAGES = ("/", "/console/tags/seen-1")
MANY = 10_000


class Crowded(Guarded):
    """Many tags, and one token of each kind."""

    def prepare(self) -> None:
        self.reader = self.make("reader", "read", tags=("seen-*",))
        self.drawer = self.make("drawer", "draw")
        fill(self.url, (f"tag-{number:05}" for number in range(MANY - 3)))
        for name in ("seen-1", "seen-2", "hidden-1"):
            self.database.create_tag(Tag(name))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    with Crowded(str(tmp_path_factory.mktemp("console")), admin="operations") as made:
        yield made


@pytest.fixture
def admin(guarded: Crowded) -> Seat:
    return Seat(guarded.service, guarded.admin)


@pytest.fixture
def reader(guarded: Crowded) -> Seat:
    return Seat(guarded.service, guarded.reader)


def tags_in(page: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/console/tags/([^"]+)"', page)


# -- coming in

ENTRY = """
GET PAGE -> 401 www-authenticate: Basic … enter a token as the password
GET PAGE <Authorization: UNKNOWN> -> 401 www-authenticate: Basic … enter a token as the password
GET PAGE <Host: BEYOND> -> 403 put TLS in front of the service … not www-authenticate
GET PAGE <Host: BEYOND> <Authorization: ADMIN> -> 403 put TLS in front of the service … not www-authenticate
GET PAGE <X-Forwarded-For: 192.0.2.7> <X-Forwarded-Proto: http> -> 403 put TLS in front of the service
GET PAGE <X-Forwarded-For: 192.0.2.7> <X-Forwarded-Proto: http> <Authorization: ADMIN> -> 403 put TLS in front
GET PAGE <Host: BEYOND> <X-Forwarded-For: 192.0.2.7> <X-Forwarded-Proto: https> -> 401
GET PAGE <Host: BEYOND> <X-Forwarded-For: 192.0.2.7> <X-Forwarded-Proto: https> <Authorization: ADMIN> -> 200
GET PAGE <Authorization: ADMIN> -> 200
POST PAGE step=5 <Authorization: ADMIN> -> 405
GET PAGE <Authorization: DRAWER> -> 403
"""
"""A token is neither asked for nor taken beyond this machine without TLS."""
OF_A_READER = """
GET /console/tags/seen-1 <Authorization: READER> -> 200 <dt>Failover gap</dt><dd>auto</dd>
GET /console/tags/hidden-1 <Authorization: READER> -> 403
GET /console/tags/no-such <Authorization: READER> -> 403
GET / <Authorization: DRAWER> -> 403 may not read tags
GET /console/tags/made-up <Authorization: ADMIN> -> 404
GET /console/tags/tag-09996 <Authorization: ADMIN> -> 200
"""
OF_THE_API = """
POST /v1/tags/seen-1/ids SENT -> 401 www-authenticate: Bearer
POST /v1/meteor SENT -> 401 www-authenticate: Bearer
GET /v1/tags SENT -> 401 www-authenticate: Bearer
GET /metrics SENT -> 401 www-authenticate: Bearer
"""
"""A browser sends the token that it keeps with a form of a foreign site too; only pages of the console take it so."""


def test_who_may_look_and_that_looking_changes_and_makes_nothing(guarded, reader):
    names = {name.upper(): basic(getattr(guarded, name)) for name in ("admin", "reader", "drawer")}
    names |= {"UNKNOWN": basic("allocator_unknown"), "BEYOND": f"ids.example:{guarded.service.port}"}
    before = guarded.database.run(segments.fetch, "seen-1")
    for page in PAGES:
        assert wrong_answers(guarded.service, ENTRY, PAGE=page, **names) == []
    assert wrong_answers(guarded.service, OF_A_READER, **names) == []
    for site in ("<Sec-Fetch-Site: same-origin>", "<Sec-Fetch-Site: cross-site> <Origin: https://evil.example>"):
        sent = f"<Authorization: {names['ADMIN']}> <Content-Type: application/x-www-form-urlencoded> {site}"
        assert wrong_answers(guarded.service, OF_THE_API, SENT=sent) == []

    assert until(lambda: tags_in(reader.text("/")) == ["seen-1", "seen-2"])
    assert guarded.database.run(segments.fetch, "seen-1") == before
    assert guarded.database.run(segments.fetch, "made-up") is None


def test_a_page_ends_with_its_token(guarded):
    seat = Seat(guarded.service, guarded.make("passing", "read"))
    assert seat.get("/").status == 200
    guarded.tokens.revoke(next(one.number for one in guarded.tokens.list() if one.name == "passing"))

    assert until(lambda: seat.get("/").status == 401)


OPEN = """
GET / -> 200
GET / <Host: evil.example:8000> -> 401 ask it by the name localhost … not www-authenticate
"""


def test_without_a_token_configured_it_is_open_to_this_machine_by_its_own_names(tmp_path):
    """A page of the web cannot look at it, also by a name that it has pointed here."""
    with Served(f"sqlite:///{tmp_path}/ids.db") as service:
        assert wrong_answers(service, OPEN) == []


# -- what a browser is told


def test_every_page_has_its_headers_and_no_script_or_style_of_its_own(admin):
    for path in (*PAGES, "/console/tags/no-such"):
        answer = admin.get(path)
        policy = dict(part.strip().partition(" ")[::2] for part in answer.headers["Content-Security-Policy"].split(";"))
        assert {policy[name] for name in ("default-src", "frame-ancestors", "form-action")} == {"'none'"}
        assert {policy[name] for name in ("script-src", "style-src", "connect-src")} == {"'self'"}
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cache-Control"] == "no-store"
        assert not re.search(
            r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=|javascript:|https?://|<form", answer.body.decode().lower()
        ), path


def test_files_are_asked_for_again_only_after_an_update(admin):
    names = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', admin.get("/").body.decode()))
    assert len(names) == 3
    for name in names:
        answer = admin.get(name)
        assert answer.status == 200
        assert admin.get(name, If_None_Match=answer.headers["ETag"]).status == 304
    assert {admin.get(f"/console/static/{name}").status for name in ("", "none.js", "../views.py")} == {404}


# -- what is shown


def test_of_ten_thousand_tags_a_hundred_are_listed_those_in_use_first(guarded, admin):
    guarded.service.post("/v1/tags/tag-09990/ids", token=guarded.admin)
    assert until(lambda: tags_in(admin.text("/"))[:2] == ["tag-09990", "hidden-1"])
    page = admin.get("/")

    assert len(tags_in(page.body.decode())) == 100
    assert "The 100 busiest of 10\u202f000 tags" in page.body.decode()
    assert len(page.body) < 60_000


def test_what_comes_from_outside_is_escaped(admin):
    page = admin.get("/console/tags/%3Cb%3E").body.decode()

    assert "<b>" not in page
    assert "&lt;b&gt;" in page


# -- without the database


def test_the_first_page_stands_where_a_number_in_the_database_is_none(tmp_path):
    url = f"sqlite:///{tmp_path}/ids.db"
    with Served(url) as service:
        service.post("/v1/tags/order/ids")
        service.post("/v1/tags/line/ids")
        execute(url, "UPDATE allocator_segment SET max_value = 1007.5 WHERE tag = 'order'")
        page = Seat(service).text("/")

    assert "line" in page
    assert "1007" not in page  # left out, and logged


def test_while_the_database_is_away_what_is_in_memory_is_shown(shared_database, tag):
    with Wire(shared_database("postgres")) as wire, Served(wire.url, options=("--timeout", "1")) as service:
        seat = Seat(service)
        service.post(f"/v1/tags/{tag}/ids")  # and nobody has looked yet: memory alone knows the tag
        wire.refuse()
        assert until(lambda: "the database is unavailable. Ids come from memory" in seat.text("/"))
        assert tags_in(seat.text("/")) == [tag]
        assert "Memory lasts" in seat.text(f"/console/tags/{tag}")
        assert seat.get("/console/tags/made-up").status == 503


def test_a_shard_that_is_away_is_shown_as_that_and_its_tags_go_on(new_database):
    plain = [with_schema(new_database("postgres")) for _ in range(2)]
    urls = made(plain)
    with (
        Wire(plain[1]) as wire,
        Served(urls[0], named(wire.url, urls[1].rpartition("=")[2]), options=("--timeout", "1")) as service,
    ):
        seat = Seat(service)
        service.put("/v1/tags/order", json={"step": 1000})
        for _ in range(4):
            service.post("/v1/tags/order/ids")
        assert until(lambda: "<dt>Databases</dt><dd>2 of 2" in seat.text("/"))
        wire.refuse()
        assert until(lambda: "Database 2 of 2 does not answer." in seat.text("/"))
        page = seat.text("/")

        assert "Ids come from the others." in page
        assert 'class="tile warn"><dt>Databases</dt><dd>1 of 2' in page
        assert 'banner bad" role' not in page
        assert tags_in(page) == ["order"]
        assert service.post("/v1/tags/order/ids?count=900").status == 200


# -- in a real browser: its plots, how it fits, and that its policy holds up nothing of ours

SHOWN = ("/", "/console/tags/order")
HURRY = 200
"""Ten minutes in three seconds."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


class Place(Guarded):
    def __init__(self, folder: str) -> None:
        super().__init__(folder, program=("-c", HURRIED.format(HURRY)))
        for tag in ("order", "order-line", "invoice"):
            self.service.put(f"/v1/tags/{tag}", token=self.admin, json={})
        self.service.post("/v1/snowflake", token=self.admin)
        self.service.post("/v1/meteor", token=self.admin)

    def draw(self) -> None:
        self.service.post("/v1/tags/order/ids?count=200", token=self.admin)


@pytest.fixture(scope="module")
def place(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with Place(str(tmp_path_factory.mktemp("browser"))) as made:
        yield made


@pytest.fixture
def visits(chromium: Browser, place: Place) -> Iterator[object]:
    """Opens windows; none of them may have anything to complain of."""
    opened: list[Visit] = []

    def visit(size: dict[str, int] = DESKTOP, scheme: str = LIGHT, **options: object) -> Visit:
        opened.append(Visit(chromium, place.service.address, place.admin, size, scheme, **options))
        return opened[-1]

    yield visit
    trouble = [found for one in opened for found in one.trouble]
    elsewhere = [url for one in opened for url in one.asked if not url.startswith(place.service.address)]
    for one in opened:
        one.close()
    assert trouble == []
    assert elsewhere == []


@pytest.mark.nightly
def test_the_plots_are_full_when_a_page_is_opened_and_go_on(visits, place):
    """Nobody looks while what they show is drawn."""

    def until_drawn(script: str) -> None:
        end = time.monotonic() + 60
        while not visit.page.evaluate(script):
            assert time.monotonic() < end, script
            place.draw()

    visit = visits()
    for _ in range(200):
        place.draw()
        time.sleep(0.02)
    for path in ("/", "/console/tags/order"):
        visit.go(path)
        visit.page.evaluate("document.querySelector('.rate .line').setAttribute('data-first', '')")
        drawn, points = visit.page.evaluate(
            """() => {
                const [line, frame] = [".line", ".grid"].map((one) => document.querySelector(`.rate ${one}`).getBBox());
                return [line.width / frame.width, document.querySelector(".rate svg").dataset.points];
            }"""
        )
        assert (drawn > 0.98, points) == (True, "121"), path
        until_drawn("document.querySelector('.rate .line:not([data-first])')")


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, DARK), (PHONE, LIGHT)], ids=["desktop-dark", "phone-light"])
def test_every_page_fits_and_is_within_its_policy(visits, size, scheme):
    """No complaint of the browser at all, which also tells of what the content security policy refuses."""
    visit = visits(size, scheme)
    for path in SHOWN:
        visit.go(path)
        assert visit.sideways() <= 0, path
    back = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 200) == (scheme == DARK)


@pytest.mark.nightly
def test_it_says_when_the_service_is_gone_and_works_without_scripts(visits):
    visit = visits()
    visit.go("/")
    visit.page.route("**/*", lambda route: route.fulfill(status=502, content_type="text/plain", body="away"))
    visit.page.get_by_text("The service does not answer.").wait_for()
    visit.page.unroute("**/*")
    visit.page.get_by_text("The service does not answer.").wait_for(state="hidden")
    visit.trouble.clear()  # of the 502
    plain = visits(java_script_enabled=False)
    plain.go("/")
    plain.page.get_by_role("link", name="invoice").click()
    plain.page.get_by_role("heading", name="invoice").wait_for()


@pytest.mark.nightly
def test_a_form_of_a_foreign_page_draws_nothing(visits, place):
    """The browser sends the token that it keeps; only pages of the console take it so."""
    visit = visits()
    visit.go("/")
    visit.page.goto("about:blank")
    visit.page.set_content(
        f"<form method=post action='{place.service.address}/v1/tags/invoice/ids'><button>Win</button></form>"
    )
    with visit.page.expect_request("**/ids") as sent:
        visit.page.get_by_role("button").click()
    visit.page.get_by_text('"status": 401').wait_for()
    visit.trouble.clear()  # of the 401

    assert sent.value.all_headers()["authorization"].startswith("Basic ")
    assert place.service.get("/v1/tags/invoice", token=place.admin).json["max_value"] == "0"
