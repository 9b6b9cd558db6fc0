"""A database that forgets what it had committed: the quick form of `tests/failover`, one scene for each kind."""

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import MetaData
from support.documents.pages import ROOT
from support.faults.forgetting import SCENES, VERDICTS, Promoted
from support.rules import rule
from support.servers.administrator import opened
from support.servers.available import without
from support.servers.databases import with_schema
from support.servers.machines import Postgres, Templates, until

from allocator import Allocator, Numbers
from allocator.errors import DatabaseRefused, DatabaseUnavailable
from allocator.schemes.failover import FLOOR

QUICK = (
    "sqlite-renamed-running",
    "postgres-promoted",
)


@pytest.fixture(scope="module")
def templates() -> Iterator[Templates]:
    with Templates() as made:
        yield made


@rule(8)
@pytest.mark.parametrize("scene", QUICK)
def test_a_database_that_forgets(scene: str, templates: Templates, tmp_path: Path):
    story = SCENES[scene].play(templates, tmp_path / "place")
    for verdict in VERDICTS:
        verdict(story)


@pytest.fixture(scope="module")
def replicated(templates: Templates) -> Iterator[Promoted]:
    """A PostgreSQL with a hot standby, which has all."""
    try:
        machine = templates.new(Postgres)
    except LookupError as error:
        without("postgres", str(error))
    with Promoted(machine) as place:
        until(lambda: place.standby.has_all_of(machine), "the standby has all")
        yield place


@rule(8)
def test_rows_alone_are_loaded_as_the_page_says(kind, fresh, new_database):
    """What the copy lacks was given on the server that it is from."""
    page, copy = (ROOT / "docs" / "failover.md").read_text(), with_schema(new_database(kind))
    with Allocator(fresh) as ids:
        ids.next_id("order"), ids.ticket("job")
        load(fresh, copy, re.findall(r"`(DELETE FROM \w+)`", page))
        assert max(ids.ticket("job") for _ in range(40)) == 41

    with Allocator(copy) as ids:
        assert ids.ticket("job") > 131_072
        assert ids.next_id("order") > 4_000_000
        assert ids.next_id("forgotten") > 4_000_000
    with Allocator(copy) as ids:
        assert ids.ticket("job") < 2 * FLOOR + 100, "skipped twice"


def load(old: str, new: str, emptied: Iterable[str]) -> None:
    """Copy the rows whose keys are not there."""
    with opened(old) as source, opened(new) as target, source.connect() as reader, target.begin() as writer:
        for statement in emptied:
            writer.exec_driver_sql(statement)
        tables = MetaData()
        tables.reflect(reader)
        for table in tables.tables.values():
            has_rows = writer.execute(table.select()).first() is not None
            if not has_rows and (rows := [dict(row) for row in reader.execute(table.select()).mappings()]):
                writer.execute(table.insert(), rows)


def test_a_process_that_was_led_to_a_hot_standby_leaves_it(replicated: Promoted) -> None:
    """Its connection stays open, and new ones lead to the primary again."""
    calls: list[Callable[[Allocator], object]] = [Allocator.meteor, Allocator.snowflake]
    for call in (*calls, lambda ids: ids.ticket("job"), lambda ids: ids.next_id("order")):
        replicated.wire.lead_to(replicated.standby.url)
        with Allocator(replicated.url, timeout=3) as led_astray:
            with pytest.raises(DatabaseUnavailable, match="recovery is in progress|read-only transaction"):
                call(led_astray)
            replicated.wire.lead_to(replicated.machine.url, cut=False)

            assert call(led_astray)


def test_a_hot_standby_shows_numbers_and_gives_none(replicated: Promoted):
    with opened(replicated.machine.url) as primary, primary.begin() as connection:
        Numbers("case").next(connection)
    until(lambda: replicated.standby.has_all_of(replicated.machine), "the standby has all")
    with opened(replicated.standby.url) as standby, standby.connect() as connection:
        with pytest.raises(DatabaseRefused, match=r"is a replica, or the transaction is read-only: .*; use the pr"):
            Numbers("case").next(connection)
        connection.rollback()
        assert str(Numbers("case").peek(connection)) == "1"
