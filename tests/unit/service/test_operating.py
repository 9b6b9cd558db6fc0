"""The loops that keep the metrics."""

import asyncio
import logging
from dataclasses import replace
from logging.config import dictConfig
from types import SimpleNamespace
from typing import Any

import pytest

from allocator.errors import DatabaseRefused, DatabaseUnavailable, SchemaOutOfDate, UnknownTag
from allocator.schemes.tag import Tag
from allocator.schemes.token import PREFIX
from allocator.service.log_config import Caller, caller_of, config_of, masked
from allocator.service.metrics import MAX_TAGS, Metrics
from allocator.service.monitoring import MetricsUpdater, unready_reason


def updater(rows: Any = None) -> MetricsUpdater:
    async def every() -> Any:
        return rows

    async def run(read: Any, databases: Any, most: int) -> Any:
        return [SimpleNamespace(number=7)], [], []

    ids = SimpleNamespace(databases=[], run=run, tags=SimpleNamespace(list=every))
    service: Any = SimpleNamespace(ids=ids)
    token_cache: Any = None
    return MetricsUpdater(service, token_cache, Metrics())


def test_what_has_the_fewest_left_has_a_series():
    """The fullest ones come last by name, so that others had their place before."""
    rows = [Tag(f"t{number:04}", limit=1000) for number in range(MAX_TAGS + 3)]
    looked = updater(rows)

    def shown() -> dict[str, float]:
        asyncio.run(looked.update_rows())
        (metric,) = looked._metrics.left.collect()
        return {one.labels["what"]: one.value for one in metric.samples}

    for used, left in ((0, None), (900, 100)):
        rows[-1] = replace(rows[-1], max_value=used)
        found = shown()
        assert len(found) == MAX_TAGS
        assert found.get(f"tag {rows[-1].name}") == left
    del rows[1:]
    assert shown() == {"tag t0000": 1000, "meteor node": 2**20 - 1 - 7}


# -- when a worker is ready


AWAY, DENIED, MISSING = DatabaseUnavailable("late"), DatabaseRefused("no right"), SchemaOutOfDate("no tables")


def source(held: int, rate: float = 10.0, trouble: Exception | None = None, given: int = 1) -> Any:
    return SimpleNamespace(given=given, rate=rate, supply=SimpleNamespace(held=lambda: held, trouble=lambda: trouble))


def token_cache(failure: Exception | None = None, loaded: bool = True) -> Any:
    return SimpleNamespace(failure=failure, loaded=loaded)


def test_ids_in_memory_make_a_worker_ready_while_the_database_is_away():
    for sources, known, trouble in [
        ([], token_cache(), None),
        ([source(31, trouble=AWAY)], token_cache(), None),
        ([source(30, trouble=AWAY)], token_cache(), "the ids of a tag last less than 3 seconds"),
        ([source(0, trouble=DENIED)], token_cache(), "less than 3 seconds: the database refuses the service"),
        ([], token_cache(MISSING), "no ids are in memory: tables are missing"),
        ([source(0, trouble=AWAY, given=0)], token_cache(), None),
        ([source(0, trouble=UnknownTag("order"))], token_cache(), None),
        ([source(31)], token_cache(AWAY), None),
        ([source(30)], token_cache(AWAY), "no ids are in memory"),
        ([source(31)], token_cache(AWAY, loaded=False), "the tokens cannot be read: the database is unavailable"),
        ([], token_cache(AWAY), "no ids are in memory"),
    ]:
        found = unready_reason(sources, known)

        assert found is None if trouble is None else trouble in str(found), (sources, known)


# -- what the service writes into its log, and what never


SECRET = PREFIX + "Ab-_9" * 8 + "xyz"


def test_a_token_is_masked_wherever_it_stands():
    for text in ["/v1/tags/{}/ids", "token={}&x=1", "got '{}'", '{{"detail": "{}"}}', "{}"]:
        assert masked(text.format(SECRET)) == text.format("allocator_***"), text


def test_one_that_was_cut_off_is_masked_and_names_of_tables_are_not():
    assert masked(f"got '{SECRET[:36]}") == "got 'allocator_***"
    for name in (
        "allocator_schema_version",
        "allocator_number_void_pkey",
        "postgresql://u@h/allocator_test_25310_page001",
    ):
        assert masked(name) == name


@pytest.mark.parametrize("form", ["json", "text"])
def test_both_forms_mask(form, capsys, monkeypatch):
    dictConfig(config_of(form))
    logging.getLogger("allocator.service").info("said %s", SECRET, extra={"path": SECRET})
    try:
        raise ValueError(SECRET)
    except ValueError:
        logging.getLogger("of.the.server").exception("failed")

    said = capsys.readouterr().err
    assert "said allocator_***" in said
    assert "ValueError: allocator_***" in said
    assert SECRET not in said


def test_a_caller_is_an_address_and_the_number_of_a_token():
    assert str(Caller("192.0.2.7", 3)) == "192.0.2.7, token 3"
    assert str(Caller("192.0.2.7", None)) == "192.0.2.7"
    assert caller_of({"client": ("a\nb" + "x" * 99, 0)}).address == "a\\nb" + "x" * 60
    assert caller_of({"client": None}).address == "this machine"
