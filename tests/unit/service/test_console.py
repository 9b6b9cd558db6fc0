"""Basic with a token as the password: where it is asked for, and where it is refused."""

import asyncio
import threading
from base64 import b64encode
from datetime import UTC, datetime
from math import inf
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from starlette.requests import Request

from allocator.errors import DatabaseUnavailable
from allocator.runtime.threads import Background
from allocator.schemes.token import VERBS, Token, digest_of
from allocator.service import auth
from allocator.service.auth import Principal, TokenCache
from allocator.service.console import figures
from allocator.service.console import latest as module
from allocator.service.console.access import principal_of
from allocator.service.console.history import ALL, EVERY, MAX_TAGS, POINTS, History
from allocator.service.console.latest import Latest
from allocator.service.console.views import Pages
from allocator.service.error_responses import Unauthorized

SECRET = "allocator_known"


def basic(password: str, user: str = "anybody") -> bytes:
    return b"Basic " + b64encode(f"{user}:{password}".encode())


def found(authorization: bytes, host: bytes = b"x", scheme: str = "https") -> str:
    """The name of the token that is found."""

    async def run() -> str:
        token = Token(1, "known", digest_of(SECRET.encode()), VERBS, ("*",), datetime.now(UTC))
        cache = TokenCache(lambda: ([token], True), is_open=False)
        await cache.refresh()
        sent = {b"host": host, b"authorization": authorization}
        return (await principal_of(cache, {"type": "http", "scheme": scheme}, sent)).token.name

    return asyncio.run(run())


def test_a_token_is_the_password_whoever_the_user_is():
    """Where it is taken at all: acceptance/test_console.py."""
    for sent in (basic(SECRET), basic(SECRET, ""), basic(SECRET).replace(b"B", b"b", 1), f"Bearer {SECRET}".encode()):
        assert found(sent) == "known", sent
    for sent in (b"", b"Basic", b"Basic %%", b"Basic YTpi", basic("", SECRET), b"Digest x"):
        with pytest.raises(Unauthorized):
            found(sent)
    for host in (b"localhost", b"localhost:8000", b"127.0.0.1:8000", b"[::1]:8000"):
        assert found(basic(SECRET), host, "http") == "known"


# -- plots, and numbers as people read them


def test_numbers_as_people_read_them():
    for shown, words in [
        (figures.count(1234567), "1 234 567"),
        (figures.count(None), ""),
        (figures.rate(0.004), ""),
        (figures.rate(0.05), "0.05"),
        (figures.rate(3.14), "3.1"),
        (figures.rate(12345.6), "12 346"),
        (figures.duration(None), ""),
        (figures.duration(inf), ""),
        (figures.duration(0.0034), "3.4 ms"),
        (figures.duration(0.25), "250 ms"),
        (figures.duration(2.5), "2.5 s"),
        (figures.duration(59.6), "60 s"),
        (figures.duration(600), "10 min"),
        (figures.duration(7300), "2.0 h"),
        (figures.duration(864_000), "10 days"),
        (figures.duration(10 * figures.YEAR), "10 years"),
        (figures.duration(1e15), "> 100 years"),
    ]:
        assert shown.replace(figures.THIN, " ") == words


def test_a_plot_ends_at_its_right_edge_and_fits_in():
    times, values = [100.0, 400.0, 700.0], [0.0, 40.0, 10.0]

    assert [figures.top_of([value]) for value in (0, 0.3, 1, 7, 1001)] == [1.0, 0.5, 1.0, 10.0, 2000.0]
    assert figures.curve(times, values) == "M0,100.0L300,20.0L600,80.0"
    assert figures.area(times, values) == "M0,100.0L300,20.0L600,80.0V100H0Z"
    assert figures.bars(times, values) == "M300,100V20.0M600,100V80.0"
    assert figures.coarse([9, 1, 2, 3, 4, 5, 6]) == [2.0, 5.0]


# -- ten minutes of what is drawn, in bounded memory


def test_a_sample_is_the_rate_since_the_one_before():
    history = History(100.0)
    history.record(105.0, {ALL: 50, "order": 50}, {"order": 0.25})
    history.record(115.0, {ALL: 70, "order": 50, "line": 20}, {})

    assert list(history.times) == [105.0, 115.0]
    assert list(history.series["order"].rates) == [10.0, 0.0]
    assert list(history.series["order"].refills) == [0.25, 0.0]
    assert list(history.series["line"].rates) == [0.0, 2.0], "it had no ids before its first"
    assert list(history.series[ALL].rates) == [10.0, 2.0]
    assert history.rates == {ALL: 2.0, "order": 0.0, "line": 2.0}
    assert history.busiest == ["order", "line"]


def test_ten_minutes_are_kept_and_a_tag_that_was_idle_for_so_long_makes_room():
    history = History(0.0)
    for number in range(1, POINTS + 1):
        history.record(number * EVERY, {ALL: number, "order": number, "once": 7}, {})
    assert history.times[-1] - history.times[0] == 600.0
    assert set(history.series) == {ALL, "order", "once"}
    history.record(606.0, {ALL: 500, "order": 500, "once": 7}, {})
    assert set(history.series) == {ALL, "order"}
    history.record(611.0, {ALL: 505, "order": 500, "once": 12}, {})

    assert {len(series.rates) for series in history.series.values()} == {len(history.times)} == {POINTS}
    assert list(history.series["once"].rates)[-2:] == [0.0, 1.0]
    history.record(616.0, {ALL: 506} | {f"tag-{number}": 5 for number in range(2 * MAX_TAGS)}, {})
    assert len(history.series) == MAX_TAGS + 1, "callers who make up tags take no more memory"


# -- what the databases say, read once for all who look


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    made = SimpleNamespace(now=100.0)
    monkeypatch.setattr(module, "monotonic", lambda: made.now)
    return made


def run(read: Any, test: Any) -> None:
    background = Background()
    asyncio.run(test(Latest(background, read, 3.0)))
    background.close(0.0)


def test_it_is_read_once_for_all_who_ask_within_its_time_and_what_was_read_last_stays_while_it_fails(clock):
    read = Mock(side_effect=["one", "two", DatabaseUnavailable("away"), RuntimeError("no new thread"), "back"])

    async def test(latest: Latest[str]) -> None:
        async def asks(seconds: float) -> int:
            clock.now, reads = clock.now + seconds, latest.reads
            await latest.ask()
            return reads

        async def read_after(reads: int) -> None:
            while latest.reads == reads:
                await asyncio.sleep(0)

        await asyncio.gather(*(latest.ask() for _ in range(24)))
        await asks(2.9)
        assert (latest.value, read.call_count) == ("one", 1)
        await asks(9.0)
        assert (latest.value, latest.age) == ("two", 0.0), "an old one is waited for"
        for _ in range(2):
            await read_after(await asks(9.0))
            assert (latest.value, type(latest.error)) == ("two", DatabaseUnavailable)
        reads = await asks(4.0)
        assert latest.error, "a page does not wait while reads fail"
        await read_after(reads)
        assert (latest.value, latest.error) == ("back", None)

    run(read, test)


def test_an_old_error_is_not_shown(clock):
    async def test(latest: Latest[str]) -> None:
        await latest.ask()
        assert latest.error
        clock.now += 100
        await latest.ask()
        assert (latest.value, latest.error) == ("back", None)

    run(Mock(side_effect=[DatabaseUnavailable("away"), "back"]), test)


def test_a_page_does_not_wait_for_ever(monkeypatch):
    async def test(latest: Latest[None]) -> None:
        await latest.ask()
        assert (latest.value, latest.error) == (None, None)

    hangs = threading.Event()
    monkeypatch.setattr(module, "MAX_WAIT", 0.0)
    run(hangs.wait, test)
    hangs.set()


# -- pages are rendered once for all who look at the same


def test_a_page_is_rendered_once_for_each_token_until_the_next_sample_and_in_its_turn(monkeypatch):
    token_cache: Any = SimpleNamespace()
    error_reporter: Any = None
    pages = Pages(token_cache, error_reporter)
    monkeypatch.setattr(auth, "PAUSE", 0)
    monkeypatch.delattr("jinja2.Environment.compile")  # no template is compiled while somebody waits
    request = Request({"type": "http", "path": "/console/tags/order", "headers": []})
    rendered = []

    def values() -> dict[str, Any]:
        rendered.append(1)
        return {"detail": "", "is_asked": False, "request_name": ""}

    def principal(number: int) -> Principal:
        return Principal(Token(number, f"token-{number}", "", VERBS, ("*",), datetime.now(UTC)))

    async def show(number: int, version: int = 1) -> bytes:
        return bytes((await pages.show(request, principals[number], "refused", version, values)).body)

    principals = {number: principal(number) for number in (1, 2)}

    async def run() -> None:
        assert len(set(await asyncio.gather(*(show(1) for _ in range(24))))) == 1
        assert len(rendered) == 1
        assert b"token-2" in await show(2)
        await show(1, version=2)
        assert len(rendered) == 3
        pages.forget()
        await show(1)
        assert len(rendered) == 4
        asyncio.get_running_loop().call_soon(pages.forget)  # a sample, before those who waited have their answer
        await show(1, version=3)
        ended: list[int] = []
        shown = [asyncio.create_task(show(number)) for number in (1, 1, 1, 2)]
        for task, number in zip(shown, (1, 1, 1, 2), strict=True):
            task.add_done_callback(lambda _, number=number: ended.append(number))
        await asyncio.wait(shown)
        await asyncio.sleep(0)
        assert ended == [1, 2, 1, 1], "pages of one token wait for each other, and those of others do not"

    asyncio.run(run())
