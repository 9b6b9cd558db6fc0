"""A database that is frozen under load: nobody notices, it is left alone, and claims go on as soon as it is back."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url
from support.distinct import distinct
from support.faults.trouble import FilePlace
from support.faults.wire import Wire
from support.kit import backend_of
from support.processes.drawing import AccountedAllocator
from support.servers.databases import with_schema
from support.servers.machine_images import killable
from tqdm import tqdm

KINDS = ["sqlite", *(pytest.param(one, marks=pytest.mark.nightly) for one in ("postgres", "mysql", "mariadb"))]
RATE, FROZEN = 20_000, 60
QUICK_RATE, QUICK_FROZEN = 2_000, 2
BEFORE, AFTER = 0.05, 2.0
"""Of that time, so that low water comes while it is frozen; and the seconds of drawing when it is back."""
PROMISED = 1.0
"""Seconds until the first claim, after the database is back."""


class Noted:
    """Instead of the account of a worker: when claims ended well."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def write(self, *record: Any) -> None:
        self.ended.append(time.monotonic())


@pytest.fixture
def freezing(kind: str, long: bool, new_database: Callable[[str], str]) -> Iterator[tuple[str, Any]]:
    """A URL, and what can be frozen and thawed behind it: in a quick run the network of a server that is shared."""
    with ExitStack() as stack:
        if kind == "sqlite":
            url = new_database(kind)
            place: Any = FilePlace(Path(str(make_url(url).database)))
        elif long:
            place = stack.enter_context(killable(kind))
            url = place.url
        else:
            place = stack.enter_context(Wire(new_database(kind)))
            url = place.url
        with_schema(url)
        yield url, place


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_a_frozen_database_is_not_noticed(kind, freezing, tag, long, report):
    url, place = freezing
    rate, frozen = (RATE, FROZEN) if long else (QUICK_RATE, QUICK_FROZEN)
    noted = Noted()
    before = frozen * BEFORE
    lasting = round(rate * (before + frozen + AFTER))
    with AccountedAllocator(
        url, noted, step=lasting, max_step=lasting, runway=frozen, timeout=5.0 if long else 1.5
    ) as ids:
        sequence = ids.sequence(tag)
        attempts = attempted(ids)
        drawn = pace(sequence, rate, before, "before")
        place.freeze()
        try:
            begun = len(noted.ended)
            drawn += pace(sequence, rate, frozen, f"{kind} frozen")
            during = len(attempts)
        finally:
            place.thaw()
        back = time.monotonic()
        drawn += pace(sequence, rate, AFTER, "after")

    assert len(noted.ended) > begun, "a claim, now that it is back"
    first = noted.ended[begun] - back
    report(
        f"{kind}: frozen for {frozen} s at {rate:,} ids/s: 0 errors, {during} claims attempted, "
        f"the first one {1000 * first:.0f} ms after its return"
    )
    assert distinct(drawn) == lasting
    assert 1 < during <= frozen + 2
    assert first < PROMISED or not long


def attempted(ids: Any) -> list[float]:
    """When a claim was attempted, from here on."""
    found: list[float] = []
    backend = backend_of(ids)
    claim = backend.claim_segment

    def counting(*args: Any, **settings: Any) -> range:
        found.append(time.monotonic())
        return claim(*args, **settings)

    backend.claim_segment = counting
    return found


def pace(sequence: Any, rate: int, seconds: float, what: str) -> list[int]:
    """Draw at this rate, in slices of a hundredth."""
    drawn: list[int] = []
    began = time.monotonic()
    for tick in tqdm(range(round(seconds * 100)), desc=what, unit_scale=0.01, unit="s"):
        drawn += [sequence.next_id() for _ in range(rate // 100)]
        time.sleep(max(0.0, began + (tick + 1) / 100 - time.monotonic()))
    return drawn
