"""What must hold of a story of a database that forgets, whichever it is; each part fails on its own."""

from __future__ import annotations

from support.distinct import none_twice
from support.faults.forgetting_story import AFTER, Story


def the_control_repeats_ids(story: Story) -> None:
    """Without a gap, or the test shows nothing: a process that has not seen what was lost gives it again."""
    off = story.told["off"]
    assert off.duplicates >= AFTER // 2, off
    assert off.fresh.error is None


def a_gap_needs_nobody(story: Story) -> None:
    """No id twice, and nobody is refused: neither who saw what was lost, nor who did not."""
    for told in (story.told["gap"], story.told["busy"]):
        none_twice(told.duplicates)
        assert not told.failures, told.failures


def a_refusal_waits_for_a_repair(story: Story) -> None:
    refuse = story.told["refuse"]
    assert (refuse.fresh.failure, refuse.fresh.ids) == ("ServerReplaced", [])
    assert {part.failure for part in refuse.old} == {"ServerReplaced"}
    assert [part.error for part in refuse.repaired] == [None] * len(refuse.repaired)
    assert all(len(part.ids) == AFTER for part in refuse.repaired)
    none_twice(refuse.duplicates)


def no_number_is_given_again(story: Story) -> None:
    """Nodes that were registered and forgotten, workers that were leased, and a tag that was made; a worker that may be
    forgotten is leased to nobody for a minute."""
    crowds = story.crowds
    assert not crowds.forgotten.errors
    assert not crowds.fresh.errors
    none_twice(crowds.nodes_twice, "nodes")
    none_twice(crowds.workers_twice, "workers")
    none_twice(crowds.late_twice, "a tag made late")


def nothing_is_noticed(story: Story) -> None:
    """Or the documentation promises less than we hold."""
    for tag in ("gap", "refuse"):
        assert story.told[tag].duplicates > 0


VERDICTS = (the_control_repeats_ids, a_gap_needs_nobody, a_refusal_waits_for_a_repair, no_number_is_given_again)
