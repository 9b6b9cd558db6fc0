"""A client that is stopped in the middle of a claim, at each of its messages: the claims of others go on."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url
from support.distinct import distinct
from support.faults.stopped_process import SECONDS, Client, Snare
from support.faults.trouble import FilePlace

from allocator.database.store import Database
from allocator.errors import DatabaseUnavailable
from allocator.schemes.tag import Tag

PROMISED = 0.05
"""Seconds for a claim of others; a quick run only says that none hangs."""
HANGING = 1.0
TIMES = 5
KINDS = ["postgres", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("mysql", "mariadb"))]
on_servers = pytest.mark.parametrize("kind", KINDS, indirect=True)


@pytest.fixture
def names(tag: str) -> list[str]:
    return [f"{tag}.frozen.{number}" for number in range(8)]


@pytest.fixture
def others(url: str, names: list[str]) -> Iterator[Database]:
    database = Database(url, timeout=15)
    for name in names:
        database.open_segment(Tag(name), create=True)
    yield database
    database.close()


def claimed_by(database: Database, names: list[str]) -> tuple[list[tuple[str, range]], float, float]:
    """One by one, several times; for how long the worst of them was held up each time, and the longest."""
    found: list[tuple[str, range]] = []
    took: dict[str, list[float]] = defaultdict(list)
    for _ in range(TIMES):
        for name in names:
            began = time.monotonic()
            found.append((name, database.claim_segment(name, 10, {})))
            took[name].append(time.monotonic() - began)
    return found, max(map(min, took.values())), max(map(max, took.values()))


def points(client: Client, wire: Snare) -> int:
    """How many messages such a claim is, after the first one on a connection."""
    for _ in range(2):
        wire.reset()
        client.tell("one")
        assert client.claimed()
    return wire.round_trips


@on_servers
def test_control_inside_a_transaction_they_would_wait(url, names):
    """Which is why a claim is one message: stopped between two of them, a client keeps its locks."""
    others = Database(url, timeout=1)
    with Snare(url) as wire, Client(wire.url, names) as client:
        wire.set(client.process.pid, 3, half=True)
        client.tell("transaction")
        assert wire.shut.wait(SECONDS)
        with pytest.raises(DatabaseUnavailable):
            others.claim_segment(names[0], 10, {})
        assert others.claim_segment(names[1], 10, {}) == range(1, 11)
    others.close()


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_of_a_file_they_wait_until_the_client_goes_on_or_is_killed(url, names, others):
    """One writer at a time is SQLite's own rule. Ids go on from memory, and nothing is lost."""
    place = FilePlace(Path(str(make_url(url).database)))
    first = others.claim_segment(names[0], 10, {})
    place.freeze()
    found: list[range] = []
    waiting = threading.Thread(target=lambda: found.append(others.claim_segment(names[0], 10, {})))
    waiting.start()
    waiting.join(0.3)
    assert not found
    place.thaw()
    waiting.join(5)

    assert found == [range(first.stop, first.stop + 10)]


@on_servers
def test_others_go_on(kind, url, names, others, long, report):
    slowest, longest, found = {}, 0.0, []
    with Snare(url) as wire, Client(wire.url, names) as client:
        for at in range(1, points(client, wire) + 1):
            for half in (True, False):
                wire.set(client.process.pid, at, half=half)
                client.tell("one")
                assert wire.shut.wait(SECONDS)
                theirs, slowest[at, half], once = claimed_by(others, names)
                longest = max(longest, once)
                wire.release()
                found += [*theirs, *client.claimed().items()]
    worst = max(slowest, key=slowest.__getitem__)
    report(
        f"{kind}: of {len(slowest)} points of a claim the worst for others was the "
        f"{'middle' if worst[1] else 'end'} of message {worst[0]}: {1000 * slowest[worst]:.0f} ms each time, "
        f"{1000 * longest:.0f} ms once"
    )

    ids = [(name, one) for name, block in found for one in block]
    assert distinct(ids)
    assert slowest[worst] < (PROMISED if long else HANGING), slowest
    assert longest < HANGING or not long
