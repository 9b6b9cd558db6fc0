"""The console in a real browser: what scripts do, how it fits a phone, and that its policy holds up nothing of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.service.browser import DARK, DESKTOP, LIGHT, PHONE, Visit, browser
from support.service.served import Served

from allocator.database.store import Database
from allocator.service.token_administration import Tokens

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.nightly

PAGES = ("/", "/console/tags/order", "/console/fleet", "/console/doctor")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


class Place:
    def __init__(self, folder: str) -> None:
        url = f"sqlite:///{folder}/ids.db"
        database = Database(url)
        database.upgrade_schema()
        tokens = Tokens(lambda: database)
        self.admin, _ = tokens.create("operations", verbs=("draw", "read", "administer"), tags=("*",))
        self.reader, _ = tokens.create("reader", verbs=("read",), tags=("order*",))
        database.close()
        self.service = Served(url)
        for tag in ("order", "order-line", "invoice"):
            self.service.put(f"/v1/tags/{tag}", token=self.admin, json={})
        self.service.post("/v1/tags/order/ids?count=500", token=self.admin)
        self.service.post("/v1/snowflake", token=self.admin)
        self.service.post("/v1/meteor", token=self.admin)


@pytest.fixture(scope="module")
def place(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(str(tmp_path_factory.mktemp("browser")))
    yield made
    made.service.close()


@pytest.fixture
def visits(chromium: Browser, place: Place) -> Iterator[object]:
    """Opens windows; none of them may have anything to complain of."""
    opened: list[Visit] = []

    def visit(size: dict[str, int] = DESKTOP, scheme: str = LIGHT, **options: object) -> Visit:
        opened.append(Visit(chromium, place.service.address, size, scheme, **options))
        return opened[-1]

    yield visit
    trouble = [found for one in opened for found in one.trouble]
    elsewhere = [url for one in opened for url in one.asked if not url.startswith(place.service.address)]
    for one in opened:
        one.close()
    assert trouble == []
    assert elsewhere == []


def test_tags_are_found_as_one_types(visits, place):
    visit = visits()
    visit.sign_in(place.admin)
    page = visit.page
    page.get_by_role("link", name="invoice").wait_for()
    page.keyboard.press("/")
    page.keyboard.type("er-l")
    page.get_by_text("1 to 1 of 1").wait_for()

    assert visit.tags() == ["order-line"]
    assert page.url.endswith("/?q=er-l&sort=name")


def test_the_plot_of_a_tag_is_drawn_and_goes_on(visits, place):
    visit = visits()
    visit.sign_in(place.admin, "/console/tags/order")
    page = visit.page
    place.service.post("/v1/tags/order/ids?count=500", token=place.admin)
    visit.until("+document.querySelector('[data-series]').dataset.points >= 3")
    before = int(page.locator("[data-series]").get_attribute("data-points"))
    visit.until(f"+document.querySelector('[data-series]').dataset.points > {before}")
    inked = page.evaluate(
        """() => {
            const canvas = document.querySelector(".canvas canvas");
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            return pixels.filter((value, at) => at % 4 === 3 && value > 0).length;
        }"""
    )

    assert inked > 2000
    visit.go("/console/tags/order")  # the browser has kept the points
    visit.until(f"+document.querySelector('[data-series]').dataset.points > {before}")
    page.get_by_role("button", name="Live").click()
    assert page.locator("#live-switch").inner_text() == "Paused"


def test_a_lesser_token_is_refused(visits, place):
    visit = visits()
    visit.sign_in(place.reader)
    page = visit.page
    assert visit.tags() == ["order", "order-line"]
    assert page.get_by_role("link", name="Doctor").count() == 0
    visit.go("/console/doctor")
    assert "This page needs a token that may read and administer all tags" in page.get_by_role("main").inner_text()
    visit.trouble.remove(next(one for one in visit.trouble if "403" in one))
    page.get_by_role("link", name="Show tags").click()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_label("Token").wait_for()


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, DARK), (PHONE, LIGHT)], ids=["desktop-dark", "phone-light"])
def test_every_page_fits_and_is_within_its_policy(visits, place, size, scheme):
    """No complaint of the browser at all, which also tells of what the content security policy refuses."""
    visit = visits(size, scheme)
    visit.sign_in(place.admin)
    for path in PAGES:
        visit.go(path)
        visit.until("!document.querySelector('[data-series]') || document.querySelector('canvas')")
        assert visit.sideways() <= 0, path
    back = visit.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 200) == (scheme == DARK)


def test_the_keyboard_reaches_what_there_is(visits, place):
    visit = visits()
    visit.sign_in(place.admin)
    page = visit.page
    page.locator("[data-poll]").wait_for()
    page.get_by_role("button", name="Live").click()  # so that nothing moves meanwhile
    visit.go("/")
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        reached.append(page.evaluate("document.activeElement.innerText || document.activeElement.id"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", reached[-1]

    assert reached[0] == "Skip to the content"
    for name in ("Doctor", "Live", "Sign out", "q", "Find", "order"):
        assert name in reached


def test_it_can_be_read_and_used_without_scripts(visits, place):
    visit = visits(java_script_enabled=False)
    page = visit.page
    visit.sign_in(place.admin)
    page.get_by_label("Find tags").fill("line")
    page.get_by_role("button", name="Find").click()
    page.wait_for_url("**q=line**", wait_until="load")
    assert visit.tags() == ["order-line"]
