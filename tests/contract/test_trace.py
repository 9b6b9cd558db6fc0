"""One record of the log for each claim."""

from __future__ import annotations

import logging
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from support.servers.administrator import values

from allocator import Allocator

once = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def test_the_log_has_each_claim_once_without_a_gap_or_an_overlap(fresh, caplog):
    """Several allocators, several threads, claims of one tag and of many: the log says what the rows say."""
    tags = [f"tag-{number}" for number in range(8)]
    with (
        closing(Allocator(fresh, step=7, max_step=7)) as one,
        closing(Allocator(fresh, step=7, max_step=7)) as two,
        ThreadPoolExecutor(4) as pool,
    ):
        list(pool.map(lambda ids: [ids.next_ids(tag, 20) for tag in tags], [one, two] * 4))
        one.reserve("tag-0", 1234)
    reached = dict(zip(tags, values(fresh, "SELECT max_value FROM allocator_segment ORDER BY tag"), strict=True))
    lines = [record.getMessage() for record in caplog.records if record.name == "allocator.claims"]
    claims = [re.fullmatch(r"claimed tag=(\S+) first=(\d+) last=(\d+) step=(\d+)", line).groups() for line in lines]

    for tag in tags:
        found = [range(int(first), int(last) + 1, int(step)) for name, first, last, step in claims if name == tag]
        assert sorted(id_ for ids in found for id_ in ids) == list(range(1, reached[tag] + 1))


@once
def test_the_log_is_off_unless_its_level_is_set(fresh, caplog):
    caplog.set_level(logging.INFO, "allocator.claims")
    with closing(Allocator(fresh)) as ids:
        ids.next_id("order")

    assert [record for record in caplog.records if record.name == "allocator.claims"] == []


@once
def test_a_handler_that_fails_burns_no_claim(fresh, monkeypatch):
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError("no space left on device")

    monkeypatch.setattr(logging.getLogger("allocator.claims"), "handlers", [Full()])
    with closing(Allocator(fresh)) as ids:
        assert ids.next_id("order") == 1
