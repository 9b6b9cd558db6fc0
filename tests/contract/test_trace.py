"""Which process got an id: by the log of claims, and for meteors by their node."""

from __future__ import annotations

import logging
import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from support.servers.administrator import values

from allocator import Allocator, MeteorSettings
from allocator.backend import databases_at
from allocator.doctor.tracing import claims_of, trace
from allocator.errors import InvalidId
from allocator.rules.claim_log import claim_in

once = pytest.mark.parametrize("kind", ["sqlite"], indirect=True)


def traced(url: str, number: object, meteor: MeteorSettings | None = None):
    with databases_at([url], 5.0) as databases:
        return trace(databases, number, meteor)


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
    last = dict(zip(tags, values(fresh, "SELECT max_value FROM allocator_segment ORDER BY tag"), strict=True))
    lines = [record.getMessage() for record in caplog.records if record.name == "allocator.claims"]

    for tag in tags:
        found = [claim for line in lines if (claim := claim_in(line)) and claim.tag == tag]
        assert sorted(id_ for claim in found for id_ in claim.ids) == list(range(1, last[tag] + 1))
        assert {(claim.host, claim.process) for claim in found} == {(platform.node(), os.getpid())}
        assert all(abs(claim.at.timestamp() - time.time()) < 120 for claim in found)


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


@once
def test_nonsense_is_refused(url):
    for nonsense in ("", "abc", "-1", "0", str(2**63), "1.5", "4df2dcec2cdcd20936a8b817", "٣", "0" * 29 + "19" * 30):
        with pytest.raises(InvalidId, match="the id must be a whole number from 1 to 9223372036854775807, got"):
            traced(url, nonsense)
        with pytest.raises(InvalidId, match="the id must be a whole number from 1 to 9223372036854775807, got"):
            claims_of(nonsense, [])


def test_a_meteor_leads_to_the_process_that_registered_its_node(fresh):
    with closing(Allocator(fresh)) as ids:
        number = ids.meteor()
    node = traced(fresh, number).node

    assert node is not None
    assert (node.host, node.process) == (platform.node(), os.getpid())
    assert traced(fresh, 5016762319896585).node is None  # of node 0, which nobody has
    assert traced(fresh, number | 7).node is None  # no meteor has this random field
