"""A database that forgets what it had committed: the quick form of `tests/failover`, one scene for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import create_engine
from support.faults.forgetting import Promoted
from support.faults.forgetting_scenes import SCENES
from support.faults.forgetting_story import Story
from support.faults.forgetting_verdict import VERDICTS
from support.processes.drawers import Thread
from support.servers.available import without
from support.servers.machine_postgres import Postgres
from support.servers.machines import Templates, until

from allocator import Allocator, Numbers
from allocator.errors import DatabaseRefused, DatabaseUnavailable

QUICK = (
    "sqlite-renamed-running",
    "sqlite-renamed-at-rest",
    "postgres-promoted",
    "mariadb-restored-elsewhere-cold",
    "postgres-without-fsync",
)


@pytest.fixture(scope="module")
def templates() -> Iterator[Templates]:
    made = Templates()
    yield made
    made.close()


@pytest.fixture(scope="module", params=QUICK)
def story(request: pytest.FixtureRequest, templates: Templates, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return SCENES[request.param].play(templates, tmp_path_factory.mktemp("place"), Thread)


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict.__name__)
def test_a_database_that_forgets(story: Story, verdict: Callable[[Story], None]):
    verdict(story)


@pytest.fixture(scope="module")
def replicated(templates: Templates) -> Iterator[Promoted]:
    """A PostgreSQL with a hot standby, which has all."""
    try:
        machine = templates.new(Postgres)
    except LookupError as error:
        without("postgres", str(error))
    with Promoted(templates, machine) as place:
        until(lambda: place.standby.has_all_of(machine), "the standby has all")
        yield place


CALLS: dict[str, Callable[[Allocator], object]] = {
    "a ticket": lambda ids: ids.ticket("invoice"),
    "a meteor": lambda ids: ids.meteor(),
    "a snowflake": lambda ids: ids.snowflake(),
    "a first use": lambda ids: ids.next_id("order"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_process_that_was_led_to_a_hot_standby_leaves_it(
    replicated: Promoted, call: Callable[[Allocator], object]
) -> None:
    """Its connection stays open, and new ones lead to the primary again."""
    replicated.wire.lead_to(replicated.standby.url)
    with Allocator(replicated.url, timeout=3) as led_astray:
        with pytest.raises(DatabaseUnavailable, match="recovery is in progress|read-only transaction"):
            call(led_astray)
        replicated.wire.lead_to(replicated.machine.url, cut=False)

        assert call(led_astray)


def test_a_hot_standby_shows_numbers_and_gives_none(replicated: Promoted):
    """Also with a time to wait, which begins with a savepoint."""
    primary, standby = create_engine(replicated.machine.url), create_engine(replicated.standby.url)
    with primary.begin() as connection:
        Numbers("case").next(connection)
    until(lambda: replicated.standby.has_all_of(replicated.machine), "the standby has all")
    for wait in (None, 0, 5):
        with standby.connect() as connection:
            with pytest.raises(DatabaseRefused, match=r"is a replica, or the transaction is read-only: .*; use the pr"):
                Numbers("case", wait=wait).next(connection)
            connection.rollback()
            assert str(Numbers("case").peek(connection)) == "1"
    primary.dispose()
    standby.dispose()
