"""Every other way in which a database forgets, once; and those that nobody can notice, with what helps there."""

import pytest
from support.distinct import none_twice
from support.faults.forgetting_scenes import PERHAPS_NOTICED, SCENES, UNNOTICED
from support.faults.forgetting_story import VERDICTS, nothing_is_noticed, the_control_repeats_ids
from support.rules import rule
from tqdm import tqdm


@rule(8)
@pytest.mark.parametrize("name", SCENES)
def test_a_database_that_forgets(name, templates, tmp_path, report):
    with tqdm(total=1, desc=name) as bar:
        story = SCENES[name].play(templates, tmp_path)
        bar.update()
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
