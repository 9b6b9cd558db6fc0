"""The console over HTTP: who may look, who sees what, and what every page says to a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from support.faults.wire import Wire
from support.processes.patience import until
from support.servers.databases import with_schema
from support.servers.fleets import made, named
from support.service.browser import DARK, DESKTOP, HURRIED, LIGHT, PHONE, Visit, browser
from support.service.served import Guarded, Seat, Served, basic, fill
from support.transcripts import wrong_answers

from allocator.database.verbs import segments
from allocator.schemes.tag import Tag

PAGES = ("/", "/console/tags/seen-1")
MANY = 10_000


OFTEN = """
from allocator.cli import main
from allocator.service import monitoring
monitoring.MINUTE = 2.0
main()
"""
"""A service that reads the tags every two seconds."""


class Crowded(Guarded):
    """Many tags, and one token of each kind."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, admin="operations", program=("-c", OFTEN))
        self.reader = self.make("reader", "read", tags=("seen-*",))
        self.drawer = self.make("drawer", "draw")
        fill(self.url, (f"tag-{number:05}" for number in range(MANY - 3)))
        for name in ("seen-1", "seen-2", "hidden-1"):
            self.database.create_tag(Tag(name))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crowded]:
    with Crowded(str(tmp_path_factory.mktemp("console"))) as made:
        assert until(lambda: Seat(made.service, made.admin).get("/console/tags/seen-1").status == 200)
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
GET PAGE <Authorization: Basic %%> -> 401 www-authenticate: Basic
GET PAGE <Authorization: Basic YTpi> -> 401 www-authenticate: Basic
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
GET /console/static/../views.py <Authorization: ADMIN> -> 404
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
    guarded.tokens.revoke(next(one.number for one in guarded.tokens.list() if one.name == "drawer"))
    gone = f"GET / <Authorization: {names['DRAWER']}> -> 401"
    assert until(lambda: wrong_answers(guarded.service, gone) == [])


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


def test_while_the_database_is_away_what_is_in_memory_is_shown(shared_database, tag):
    with Wire(shared_database("postgres")) as wire, Served(wire.url, options=("--timeout", "1")) as service:
        seat = Seat(service)  # without a token, before a service that is open to this machine by its own names
        assert seat.get("/", Host="evil.example:8000").status == 401
        service.post(f"/v1/tags/{tag}/ids")
        wire.refuse()
        assert until(lambda: "the database is unavailable. Ids come from memory" in seat.text("/"))
        assert tag in tags_in(seat.text("/"))
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

        def found() -> bool:
            service.post("/v1/tags/order/ids?count=900")
            return "Database 2 of 2 does not answer." in seat.text("/")

        assert until(found)
        page = seat.text("/")

        assert "Ids come from the others." in page
        assert 'class="tile warn"><dt>Databases</dt><dd>1 of 2' in page
        assert 'banner bad" role' not in page
        assert tags_in(page) == ["order"]
        assert service.post("/v1/tags/order/ids?count=900").status == 200


# -- in a real browser: its plots, how it fits, and that its policy holds up nothing of ours

FULL = """() => {
    const [line, frame] = [".line", ".grid"].map((one) => document.querySelector(`.rate ${one}`).getBBox());
    return [line.width / frame.width > 0.98, document.querySelector(".rate svg").dataset.points];
}"""


@pytest.mark.nightly
def test_in_a_browser_plots_are_full_and_go_on_and_every_page_fits_and_is_within_its_policy(tmp_path):
    """Nobody looks while what they show is drawn. A browser complains of what the content security policy refuses."""
    hurried = ("-c", HURRIED.format(200))  # ten minutes in three seconds
    with browser() as chromium, Guarded(str(tmp_path), program=hurried) as place:

        def draw() -> None:
            place.service.post("/v1/tags/order/ids?count=200", token=place.admin)

        place.service.post("/v1/snowflake", token=place.admin)
        place.service.post("/v1/meteor", token=place.admin)
        for _ in range(200):
            draw()
            time.sleep(0.02)
        for size, scheme in ((DESKTOP, DARK), (PHONE, LIGHT)):
            with Visit(chromium, place.service.address, place.admin, size, scheme) as visit:
                for path in ("/", "/console/tags/order"):
                    visit.go(path)
                    assert visit.sideways() <= 0, path
                back = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
                assert (sum(map(int, back[4:-1].split(","))) < 200) == (scheme == DARK)
                for path in ("/", "/console/tags/order"):
                    visit.go(path)
                    visit.page.evaluate("document.querySelector('.rate .line').setAttribute('data-first', '')")
                    assert visit.page.evaluate(FULL) == [True, "121"], path
                    newer = "document.querySelector('.rate .line:not([data-first])')"
                    assert until(lambda visit=visit, newer=newer: draw() or visit.page.evaluate(newer), 60)
                assert visit.trouble == []
                assert [url for url in visit.asked if not url.startswith(place.service.address)] == []
