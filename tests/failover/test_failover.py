"""Databases that forget in every way, many times where a standby is promoted; and some that move and forget nothing."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from support.distinct import none_twice
from support.faults.forgetting import (
    AFTER,
    KEPT,
    PERHAPS_NOTICED,
    SCENES,
    SETTINGS,
    UNNOTICED,
    VERDICTS,
    Promoted,
    Told,
    nothing_is_noticed,
    scene,
    stranger,
    the_control_repeats_ids,
)
from support.processes.drawers import Drawer, draw_together
from support.rules import rule
from support.servers.available import or_without
from support.servers.databases import with_schema
from support.servers.machine_images import Image, MariaDBImage, MySQLImage, PostgresImage
from support.servers.machines import Green, Machine, Postgres, Templates

from allocator import Allocator
from allocator.schemes.failover import FLOOR
from allocator.schemes.meteor import METEOR

ROUNDS = {
    f"{kind}-promoted-{form}-{number}": scene(kind, Promoted, f"--binlog-format={form}")
    for kind, times in (("mariadb", 10), ("mariadb-image", 3), ("mysql", 3))
    for form in ("ROW", "MIXED")
    for number in range(times)
}
ROUNDS |= {
    f"postgres-promoted-{program}-{number}": scene("postgres", Promoted, program=program)
    for program in Postgres.programs_here()
    for number in range(20)
}
"""A primary is killed, its asynchronous standby is promoted, and ids go on; of PostgreSQL with each version here."""


@rule(8)
@pytest.mark.parametrize("name", SCENES | ROUNDS)
def test_a_database_that_forgets(name, templates, tmp_path, report):
    story = (SCENES | ROUNDS)[name].play(templates, tmp_path)
    told = {tag: (drawn.ids, drawn.duplicates) for tag, drawn in story.told.items()}
    report(f"(ids, duplicates): {told}")
    for verdict in VERDICTS:
        verdict(story)


@pytest.mark.parametrize("name", UNNOTICED)
def test_what_tells_nothing_of_having_been_replaced(name, templates, tmp_path, report):
    """The documentation says so; the operator has to: see the next test."""
    story = UNNOTICED[name].play(templates, tmp_path)
    report(f"unnoticed: {story.told['gap'].duplicates} of {story.told['gap'].ids} ids twice")
    the_control_repeats_ids(story)
    nothing_is_noticed(story)


@pytest.mark.parametrize("name", UNNOTICED | PERHAPS_NOTICED)
def test_what_an_operator_says_before_anybody_draws_helps_there(name, templates, tmp_path, report):
    story = (UNNOTICED | PERHAPS_NOTICED)[name].play(templates, tmp_path, repaired=True)
    told = story.told["gap"]
    report(f"told first: {told.duplicates} of {told.ids} ids twice")
    none_twice(told.duplicates)
    assert told.failures == []


# -- databases that move and forget nothing: to another pod, through `pg_upgrade`; and numbers on a logical replica


PODS: dict[str, type[Image]] = {"postgres": PostgresImage, "mysql": MySQLImage, "mariadb": MariaDBImage}
PLACES = {"same": ("pod-0", None), "another-host": ("pod-1", None), "another-host-and-path": ("pod-1", "/elsewhere")}


@pytest.fixture
def new(templates: Templates):
    def make(kind: type[Machine], program: Path | None = None) -> Machine:
        return or_without(kind.kind, lambda: templates.new(kind, program))

    return make


def drawn(machine: Machine, move: Callable[[], None]) -> tuple[Told, int]:
    """Of a process that runs meanwhile and of one that comes then; and how many ids were skipped."""
    machine.start()
    told, url = Told(), with_schema(machine.url)
    with Drawer(url, **SETTINGS) as old, Drawer(url, **SETTINGS) as fresh:
        told.before = draw_together([old], "order", KEPT)
        machine.stop()
        move()
        told.fresh, *told.old = draw_together([fresh, old], "order", AFTER)
    with Allocator(url) as ids:
        return told, ids.tags.get("order").skipped


def skips(told: Told, skipped: int, gap: bool) -> None:
    none_twice(told.duplicates)
    assert told.failures == []
    assert told.ids == KEPT + 2 * AFTER
    assert FLOOR <= skipped < 2 * FLOOR if gap else skipped == 0


@pytest.mark.parametrize("kind", PODS)
@pytest.mark.parametrize("place", PLACES)
def test_another_pod_with_the_same_volume(kind, place, new, report):
    with closing(new(PODS[kind])) as pod:

        def move():
            pod.host, mount = PLACES[place]
            pod.mount = mount or pod.mount
            pod.start()

        pod.host = "pod-0"
        told, skipped = drawn(pod, move)
    report(f"{told.duplicates} of {told.ids} ids twice, {skipped} skipped")
    skips(told, skipped, gap=kind == "mariadb" and place != "same")


@pytest.mark.parametrize("program", Postgres.programs_here(), ids=str)
@pytest.mark.parametrize("how", [(), ("--link",)], ids=["copy", "link"])
def test_pg_upgrade(program, how, new, report):
    """Of each version that is here, to a new server of the same version."""
    with closing(new(Postgres, program)) as old, closing(stranger(old)) as new_one:
        new_one.port = old.port

        def move():
            new_one.upgrade(old, *how)
            new_one.start()

        told, skipped = drawn(old, move)
    report(f"{told.duplicates} of {told.ids} ids twice, {skipped} skipped")
    skips(told, skipped, gap=True)


def test_numbers_go_on_above_the_rows_of_a_logical_replica(templates):
    """It has the rows of what it replicates, and not its sequences."""
    with Promoted(templates.new(Green)) as place:
        place.machine.ask("SELECT setval(pg_get_serial_sequence('allocator_node', 'id'), 300000)")
        before = numbers(place.url)
        place.part()
        before += numbers(place.url)
        place.strike()
        after = numbers(place.url) + numbers(place.url)

    assert min(after) > max(before)


def numbers(url: str) -> list[int]:
    with Allocator(url, timeout=15) as ids:
        return [ids.ticket("job"), ids.ticket("order"), METEOR.unpack(ids.meteor())["node"]]
