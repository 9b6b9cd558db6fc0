"""The console in a real browser: its plots, how it fits, and that its policy holds up nothing of ours."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.service.browser import DARK, DESKTOP, HURRIED, LIGHT, PHONE, Visit, browser
from support.service.served import Guarded

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.nightly

PAGES = ("/", "/console/tags/order", "/console/fleet", "/console/doctor")
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


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, DARK), (PHONE, LIGHT)], ids=["desktop-dark", "phone-light"])
def test_every_page_fits_and_is_within_its_policy(visits, size, scheme):
    """No complaint of the browser at all, which also tells of what the content security policy refuses."""
    visit = visits(size, scheme)
    for path in PAGES:
        visit.go(path)
        assert visit.sideways() <= 0, path
    back = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 200) == (scheme == DARK)


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
