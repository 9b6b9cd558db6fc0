"""Databases that forget, many times where a standby is promoted; `contract/test_server_runs.py` has each move."""

import pytest
from support.distinct import none_twice
from support.faults.forgetting import (
    SCENES,
    UNNOTICED,
    VERDICTS,
    Promoted,
    nothing_is_noticed,
    scene,
    the_control_repeats_ids,
)
from support.rules import rule

ROUNDS = {f"postgres-promoted-{number}": scene("postgres", Promoted) for number in range(20)} | {
    f"{kind}-promoted-{form}-{number}": scene(kind, Promoted, f"--binlog-format={form}")
    for kind, times in (("mariadb", 10), ("mysql", 3))
    for form in ("ROW", "MIXED")
    for number in range(times)
}
"""A primary is killed, its asynchronous standby is promoted, and ids go on."""


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


@pytest.mark.parametrize("name", UNNOTICED)
def test_what_an_operator_says_before_anybody_draws_helps_there(name, templates, tmp_path, report):
    story = UNNOTICED[name].play(templates, tmp_path, repaired=True)
    told = story.told["gap"]
    report(f"told first: {told.duplicates} of {told.ids} ids twice")
    none_twice(told.duplicates)
    assert told.failures == []
