"""The pure parts of the console: histories, rows, words, sessions; and what is kept for a while."""

from __future__ import annotations

import asyncio
import json
import os
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from itsdangerous import TimestampSigner

from allocator import DatabaseUnavailable, inspect_id
from allocator.schemes.tag import Tag
from allocator.service.console import formatting
from allocator.service.console.actions import settings_of
from allocator.service.console.assets import FILES, STATIC, Assets
from allocator.service.console.bit_drawing import bands
from allocator.service.console.cached import PAUSE, Cached
from allocator.service.console.history import Ring, Sample, together
from allocator.service.console.peers import ASKED_FOR, FRESH, MOST_ASKED, Peers, Told
from allocator.service.console.pulse import ALL, STRIDE, TAG_SECONDS, Pulse
from allocator.service.console.screen import Screen
from allocator.service.console.sessions import LIFETIME, Sessions, cookie_name, is_from_us, own_path
from allocator.service.console.tag_table import PAGE, Figure, days_left, lasting, page_of, row_of, sorting, sum_of
from allocator.service.console.views import asked_of

DIGEST = bytes(range(32))


# -- histories


def test_a_ring_keeps_the_last_seconds():
    ring = Ring(4)
    for second in range(10, 17):
        ring.put(second, second * 2.0, 0.5 if second == 15 else 0.0)

    assert ring.samples() == [(13, 26.0, 0.0), (14, 28.0, 0.0), (15, 30.0, 0.5), (16, 32.0, 0.0)]
    assert ring.mean(2) == 31.0
    assert ring.mean(99) == 29.0


def test_a_rate_is_that_of_all_seconds_since_the_last():
    """A loop that was late says one rate for the two seconds it measured."""
    ring = Ring(5)
    ring.put(10, 1.0)
    ring.put(13, 6.0, 0.25)

    assert ring.samples() == [(10, 1, 0), (11, 6, 0), (12, 6, 0), (13, 6, 0.25)]


def test_the_slowest_refill_of_a_second_counts():
    ring = Ring(3)
    ring.put(5, 1.0, 0.5)
    ring.put(5, 2.0, 0.25)

    assert ring.samples() == [(5, 1.0, 0.5)]


@pytest.mark.parametrize("second", [4, 15, 10_000])
def test_a_clock_that_was_set_begins_a_new_history(second):
    ring = Ring(5)
    ring.put(10, 7.0)
    ring.put(second, 1.0)

    assert ring.samples() == [(second, 1.0, 0.0)]


def test_an_empty_ring_and_an_idle_one():
    ring = Ring(3)
    assert (ring.samples(), ring.mean(5), ring.is_idle) == ([], 0.0, True)
    ring.put(1, 3.0)
    assert not ring.is_idle
    for second in (2, 3, 4):
        ring.put(second, 0.0)
    assert ring.is_idle


def test_histories_of_several_workers_add_up_as_far_as_all_have_told():
    ours = [Sample(1, 5.0, 0.5), Sample(2, 6.0, 0.0), Sample(3, 7.0, 0.0)]
    theirs = [[2, 10.0, 0.25]]

    assert together([ours, theirs, []]) == [(1, 5.0, 0.5), (2, 16.0, 0.25)]
    assert together([]) == []


def fake_service(*given: int) -> Any:
    """Tags that gave so many ids."""
    draws = [SimpleNamespace(tag=f"tag-{at}", scheme="segment", given=total) for at, total in enumerate(given)]
    for draw in draws:
        draw.buffer = SimpleNamespace(count=lambda: 50)
    every = SimpleNamespace(all=lambda: draws, sequences=lambda: draws)
    return SimpleNamespace(draws=every, sequences=SimpleNamespace(blocks={}), tickets={})


def measured(pulse: Pulse, now: float, clock: float) -> int:
    return sum(1 for _ in pulse.measure(now, clock))


def test_what_is_measured_is_the_rate_between_two_looks():
    service = fake_service(100, 0)
    pulse = Pulse(service)
    measured(pulse, 1.0, 500.0)
    service.draws.all()[0].given += 30
    service.sequences.blocks["tag-1"] = 8
    service.tickets["invoice"] = 4
    pulse.refilled(["tag-0"], 0.25)
    measured(pulse, 3.0, 502.0)

    assert [sample[1:] for sample in pulse.samples("tag-0")] == [(15.0, 0.25)]
    assert [sample[1:] for sample in pulse.samples("tag-1")] == [(4.0, 0.0)]
    assert pulse.samples(ALL) == [(502, 21.0, 0.25)]
    assert pulse.rate() == 21.0
    assert pulse.figures()["tag-0"] == Figure(15.0, 50, 50 / 15, 0.25)


def test_a_tag_that_is_drawn_no_more_is_forgotten_in_time():
    service = fake_service(0)
    pulse = Pulse(service)
    measured(pulse, 0.0, 0.0)
    service.draws.all()[0].given = 5
    for second in range(1, TAG_SECONDS + 1):
        measured(pulse, float(second), float(second))
    assert pulse.samples("tag-0")
    measured(pulse, TAG_SECONDS + 1.0, TAG_SECONDS + 1.0)
    assert pulse.samples("tag-0") == []


def test_between_many_tags_others_have_their_turn():
    assert measured(Pulse(fake_service(*range(10 * STRIDE))), 1.0, 1.0) >= 9


# -- rows


def tags(*names: str, **settings: int) -> dict[str, Tag]:
    return {name: Tag(name, **settings) for name in names}


def test_pages_of_names():
    names = [f"tag-{number:03}" for number in range(120)]
    pages = [page_of(names, "", "name", number, lambda name: 0.0) for number in (1, 3, 99, 0)]

    assert [(page.number, page.first, page.last, len(page.names)) for page in pages] == [
        (1, 1, PAGE, PAGE),
        (3, 101, 120, 20),
        (3, 101, 120, 20),
        (1, 1, PAGE, PAGE),
    ]
    empty = page_of([], "", "name", 1, lambda name: 0.0)
    assert (empty.pages, empty.first, empty.last, empty.found) == (1, 0, 0, 0)


@pytest.mark.parametrize(
    ("text", "found"),
    [("ord", ["Order", "my-order"]), ("ORDER", ["Order", "my-order"]), ("ord*", ["Order"]), (" a ", ["a"]), ("x", [])],
)
def test_what_is_found(text, found):
    assert list(page_of(["Order", "a", "my-order"], text, "name", 1, lambda name: 0.0).names) == found


@pytest.mark.parametrize(
    ("sort", "names"),
    [
        ("rate", ["busy", "slow", "idle"]),
        ("memory", ["slow", "busy", "idle"]),
        ("days", ["busy", "slow", "idle"]),
        ("claimed", ["idle", "busy", "slow"]),
        ("name", ["busy", "idle", "slow"]),
    ],
)
def test_orders(sort, names):
    known = {"busy": Tag("busy", 10), "idle": Tag("idle", 99), "slow": Tag("slow", 5)}
    figures = {"busy": Figure(100.0, 5000, 50.0), "slow": Figure(1.0, 2, 2.0)}
    values = sorting(sort, known, figures, {})

    assert list(page_of(sorted(known), "", sort, 1, values).names) == names


def test_days_left_are_measured_or_else_as_if_the_moment_went_on():
    tag = Tag("a", 0, limit=864_000)

    assert days_left(tag, 1.0, 3.5) == 3.5
    assert days_left(tag, 1.0, inf) == days_left(tag, 1.0, None) == 10.0
    assert days_left(tag, 0.0, inf) is None


def test_a_row_of_memory_alone_says_so_and_what_is_short_is_marked():
    row = row_of("a", None, Figure(10.0, 20, lasting(20, 10.0)), None)
    ends = row_of("a", Tag("a", limit=10**6), Figure(10.0), None)

    assert (row.tag, row.days, row.is_short, row.ends_soon) == (None, None, True, False)
    assert (ends.is_short, ends.ends_soon) == (False, True)
    assert lasting(20, 0.0) == inf


def test_figures_of_workers_together():
    found = sum_of([Figure(10, 100, 10.0, 0.5), Figure(5, 10, 2.0, 0.1)])

    assert found == (15, 110, 2.0, 0.5)
    assert sum_of([]) == Figure()


@pytest.mark.parametrize(
    ("given", "page", "sort"),
    [
        ({}, 1, "name"),
        ({"page": "7", "sort": "rate"}, 7, "rate"),
        ({"page": "-1"}, 1, "name"),
        ({"page": "9" * 99}, 1, "name"),
        ({"page": "²"}, 1, "name"),
        ({"sort": "x"}, 1, "name"),
    ],
)
def test_what_a_page_is_asked(given, page, sort):
    asked = asked_of(given)

    assert (asked.page, asked.sort) == (page, sort)


def test_only_what_was_filled_in_and_changed_is_set():
    form = {
        "step": "5",
        "was_step": "5",
        "limit": "7",
        "was_limit": "9",
        "margin": "",
        "start_after": "3",
        "proof": "x",
    }

    assert settings_of(form) == {"limit": 7, "start_after": 3}


# -- words


@pytest.mark.parametrize(
    ("said", "words_"),
    [
        (formatting.count(1234567), "1 234 567"),
        (formatting.rate(0), formatting.NONE),
        (formatting.rate(0.05), "0.05"),
        (formatting.rate(3.14), "3.1"),
        (formatting.rate(12345.6), "12 346"),
        (formatting.latency(0), formatting.NONE),
        (formatting.latency(0.0034), "3.4 ms"),
        (formatting.latency(0.25), "250 ms"),
        (formatting.latency(2.5), "2.5 s"),
        (formatting.lasting(inf), "idle"),
        (formatting.lasting(None), formatting.NONE),
        (formatting.lasting(2.5), "2.5 s"),
        (formatting.lasting(59.6), "60 s"),
        (formatting.lasting(600), "10 min"),
        (formatting.lasting(7300), "2 h"),
        (formatting.lasting(864000), "10 days"),
        (formatting.days(None), formatting.NONE),
        (formatting.days(3.25), "3.2 days"),
        (formatting.days(400), "400 days"),
        (formatting.days(3653), "10 years"),
        (formatting.days(1e12), "> 100 years"),
        (formatting.part(0, 100), "0 %"),
        (formatting.part(1, 10**9), "< 0.01 %"),
        (formatting.part(25, 100), "25.00 %"),
        (formatting.ago(0.2), "just now"),
        (formatting.ago(30), "30 s ago"),
        (formatting.ago(inf), "never"),
        (formatting.duration(inf), "for ever"),
    ],
)
def test_numbers_as_people_read_them(said, words_):
    assert said.replace(formatting.THIN, " ") == words_


def test_the_bits_of_an_id_add_up():
    for reading in inspect_id(5016762319896585).readings:
        found = bands(reading)
        assert sum(band.width for band in found) == (0 if reading.scheme == "segment" else 64)
        assert {band.name: band.value for band in found if band.name != "sign"} == (reading.fields if found else {})


# -- sessions


def test_a_session_opens_with_its_key_while_it_lasts(monkeypatch):
    clock = [1000]
    monkeypatch.setattr(TimestampSigner, "get_timestamp", lambda self: clock[0])
    sessions = Sessions(b"k" * 32)
    cookie = sessions.issue(DIGEST)

    assert sessions.digest(cookie) == DIGEST
    assert Sessions(b"j" * 32).digest(cookie) is None
    clock[0] += LIFETIME - 1
    assert sessions.digest(cookie) == DIGEST
    clock[0] += 1
    assert sessions.digest(cookie) is None


def test_no_part_of_a_session_can_be_changed():
    sessions = Sessions(b"k" * 32)
    cookie = sessions.issue(DIGEST)
    for at in range(len(cookie)):
        other = "0" if cookie[at] != "0" else "1"
        forged = cookie[:at] + other + cookie[at + 1 :]
        assert sessions.digest(forged) is None
    for text in ("", ".", "a.b.c.d", "é.é", "\udcff", cookie[:-1], f"{cookie}.x"):
        assert sessions.digest(text) is None


def test_a_proof_is_good_for_its_session_and_is_no_session():
    sessions = Sessions(b"k" * 32)
    ours, theirs = sessions.issue(DIGEST), sessions.issue(DIGEST)

    assert sessions.is_proof(sessions.proof(ours), ours)
    assert not sessions.is_proof(sessions.proof(theirs), ours)
    for text in ("", "é", "\udcff", "!"):
        assert not sessions.is_proof(text, ours)
    assert sessions.proof(ours) != ours.rpartition(".")[2]
    assert sessions.digest(f"{ours.rpartition('.')[0]}.{sessions.proof(ours.rpartition('.')[0])}") is None


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "cross-site", "origin": "http://here", "host": "here"}, False),
        ({"origin": "https://here:8000", "host": "here:8000"}, True),
        ({"origin": "https://here:8001", "host": "here:8000"}, False),
        ({"origin": "null", "host": "null"}, False),
        ({"host": "here"}, False),
        ({}, False),
    ],
)
def test_where_a_change_comes_from(headers, is_ours):
    assert is_from_us(headers) is is_ours


def test_names_of_cookies_tell_services_of_one_machine_apart():
    assert cookie_name("http", "127.0.0.1:8000") == "allocator-8000"
    assert cookie_name("https", "ids.example:8443") == "__Host-allocator-8443"
    assert cookie_name("https", "ids.example") == "__Host-allocator"


@pytest.mark.parametrize(
    ("given", "there"),
    [
        ("/console/fleet", "/console/fleet"),
        ("/?q=a", "/?q=a"),
        ("", "/"),
        ("//evil", "/"),
        ("/\\evil", "/"),
        ("x", "/"),
        ("/a\nb", "/"),
    ],
)
def test_where_to_go_after_signing_in(given, there):
    assert own_path(given) == there


# -- kept for a while


class Source:
    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.answer: object = "one"

    async def load(self) -> object:
        self.asked += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def cached(self) -> Cached[object]:
        return Cached(self.load, 10.0, lambda: self.now)


def test_it_is_read_once_for_all_who_ask_within_its_time():
    async def run() -> None:
        source = Source()
        cached = source.cached()
        found = await asyncio.gather(*(cached.get() for _ in range(5)))
        assert ({one.value for one in found}, source.asked) == ({"one"}, 1)
        source.now += 9.9
        await cached.get()
        assert source.asked == 1
        source.now += 0.1
        await cached.get()
        assert source.asked == 2
        cached.forget()
        await cached.get()
        assert source.asked == 3
        source.now += 3
        await cached.get(within=2.0)
        assert source.asked == 4

    asyncio.run(run())


@pytest.mark.parametrize("error", [DatabaseUnavailable("away"), RuntimeError("can't start new thread")])
def test_what_was_read_last_stays_while_it_fails(error):
    async def run() -> None:
        source = Source()
        cached = source.cached()
        await cached.get()
        source.now, source.answer = source.now + 20, error
        found = await cached.get()
        assert (found.value, found.age) == ("one", 20.0)
        assert isinstance(found.error, DatabaseUnavailable)
        await cached.get()
        assert source.asked == 2  # not again at once
        source.now, source.answer = source.now + PAUSE, "two"
        await cached.get()
        await asyncio.sleep(0)
        found = await cached.get()
        assert (found.value, found.error) == ("two", None)

    asyncio.run(run())


def test_what_was_forgotten_keeps_its_age_while_it_cannot_be_read_anew():
    async def run() -> None:
        source = Source()
        cached = source.cached()
        await cached.get()
        cached.forget()
        source.now, source.answer = source.now + 1, DatabaseUnavailable("away")
        found = await cached.get()
        assert (found.value, found.age, source.asked) == ("one", 1.0, 2)
        source.now, source.answer = source.now + PAUSE, "two"
        await cached.get()  # it is still to be read anew, long before its time
        await asyncio.sleep(0)
        assert (await cached.get()).value == "two"

    asyncio.run(run())


def test_a_reading_that_began_before_a_change_does_not_count_as_one_after_it():
    async def run() -> None:
        going, asked = asyncio.Event(), 0

        async def load() -> int:
            nonlocal asked
            asked += 1
            seen = asked
            await going.wait()
            return seen

        cached = Cached(load, 10.0)
        assert (await cached.get(patience=0.0)).is_coming
        cached.forget()
        going.set()
        assert (await cached.get()).value == 1
        assert (await cached.get()).value == 2

    asyncio.run(run())


def test_a_failure_of_long_ago_says_nothing():
    async def run() -> None:
        source = Source()
        source.answer = DatabaseUnavailable("away")
        cached = source.cached()
        await cached.get()
        assert cached.failing(4.0)
        source.now += 4
        assert cached.failing(4.0) is None

    asyncio.run(run())


def test_a_page_does_not_wait_for_ever():
    async def run() -> None:
        hanging = asyncio.Event()

        async def load() -> str:
            await hanging.wait()
            return "late"

        cached = Cached(load, 10.0)
        found = await cached.get(patience=0.0)
        assert (found.value, found.is_coming) == (None, True)
        hanging.set()
        assert (await cached.get()).value == "late"

    asyncio.run(run())


# -- the workers of one service


def test_a_worker_tells_what_is_asked_for_and_nothing_else(tmp_path):
    peers = Peers(str(tmp_path), 2)
    said: list[list[str]] = []

    def say(names: list[str]) -> Told:
        said.append(names)
        return Told(5.0, {"order": Figure(1.0, 2, 3.0, 4.0)}, {name: [Sample(1, 2.0, 3.0)] for name in names})

    peers.tell(say)
    assert said == []
    assert peers.ask(["order", "a:b"]) == []
    peers.tell(say)
    assert sorted(said[0]) == ["a:b", "order"]
    own = tmp_path / "console" / f"{os.getpid()}.json"
    own.rename(tmp_path / "console" / "1.json")  # as if another one had written it
    (told,) = peers.ask(["order"])
    assert told.figures == {"order": Figure(1.0, 2, 3.0, 4.0)}
    assert told.histories["order"] == [Sample(1, 2.0, 3.0)]


def test_who_is_gone_counts_no_more_and_an_old_question_is_forgotten(tmp_path):
    peers = Peers(str(tmp_path), 2)
    peers.ask(["order"])
    gone = tmp_path / "console" / "1.json"
    gone.write_text(json.dumps(Told(1.0, {}, {})))
    assert len(peers.ask([])) == 1
    for path, age in ((gone, FRESH), *((path, ASKED_FOR) for path in (tmp_path / "console" / "asked").iterdir())):
        at = path.stat().st_mtime - age - 1
        os.utime(path, (at, at))

    assert peers.ask([]) == []
    assert peers.wanted() == []
    assert list((tmp_path / "console" / "asked").iterdir()) == []


def test_only_so_many_names_are_asked_for_and_these_go_on(tmp_path):
    peers = Peers(str(tmp_path), 2)
    names = [f"tag-{at}" for at in range(MOST_ASKED)]
    peers.ask(names)
    peers.ask(["one-more", "tag-0"])

    assert sorted(peers.wanted()) == sorted(names)
    assert peers.is_asked("tag-0")
    assert not peers.is_asked("one-more")
    for path in (tmp_path / "console" / "asked").iterdir():
        os.utime(path, (1, 1))
    peers.ask(["tag-0"])
    assert peers.wanted() == ["tag-0"]


def test_one_worker_alone_writes_no_files(tmp_path):
    assert not Peers(str(tmp_path), 1).are_there
    assert list(tmp_path.iterdir()) == []


# -- what is shipped


def test_no_template_is_made_ready_while_somebody_waits(monkeypatch):
    screen = Screen(Assets())
    monkeypatch.delattr("jinja2.Environment.compile")

    assert screen.show("refused.html", visitor=None, path="/", is_away=False, detail="no", request_name="x", clock=0.0)


def test_what_comes_from_elsewhere_has_its_licence_and_version():
    versions = json.loads((STATIC / "vendor" / "versions.json").read_text())
    folders = [path for path in (STATIC / "vendor").iterdir() if path.is_dir()]

    assert sorted(versions) == sorted(path.name for path in folders)
    for folder in folders:
        assert (folder / "LICENSE").read_text().strip()
        scripts = " ".join(path.read_text() for path in folder.glob("*.js"))
        assert versions[folder.name]["version"] in scripts
    assert all((STATIC / path).is_file() for path in FILES.values())
