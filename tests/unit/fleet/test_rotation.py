"""Which database is next, and which is left alone."""

from itertools import pairwise

from allocator.errors import DatabaseUnavailable
from allocator.fleet.rotation import FIRST_PAUSE, LONGEST_PAUSE, Rotation
from allocator.schemes.shared.retry_pace import Wait

DOWN = DatabaseUnavailable("down")


def test_databases_are_used_in_turn():
    rotation = Rotation(3)

    assert [rotation.next(0.0) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_one_that_failed_is_skipped_at_once_and_no_other():
    rotation = Rotation(3)
    assert rotation.failed(1, DOWN, 0.0)
    assert not rotation.failed(1, DOWN, 0.0), "it was left alone already"

    assert [rotation.next(0.0) for _ in range(4)] == [0, 2, 0, 2]


def test_it_is_probed_after_pauses_that_double():
    rotation, now, pauses = Rotation(2), 0.0, []
    rotation.failed(0, DOWN, now)
    for _ in range(10):
        began = now
        while not rotation.due(now, 9):
            now += 0.01
        pauses.append(now - began)
        assert not rotation.due(now + LONGEST_PAUSE - 1, 9), "a probe is under way"
        rotation.failed(0, DOWN, now)

    assert abs(pauses[0] - FIRST_PAUSE) < 0.02
    assert all(1.5 < later / earlier < 2.5 for earlier, later in pairwise(pauses[:6]))
    assert abs(pauses[-1] - LONGEST_PAUSE) < 0.02


def test_a_probe_whose_end_nobody_told_is_made_again():
    rotation = Rotation(2)
    rotation.failed(0, DOWN, 0.0)

    assert [rotation.due(now, 9) for now in (1.0, LONGEST_PAUSE, 1.0 + LONGEST_PAUSE)] == [[0], [], [0]]


def test_calls_that_fail_while_it_is_left_alone_do_not_lengthen_the_pause():
    rotation = Rotation(1)
    for _ in range(50):
        rotation.failed(0, DOWN, 0.0)

    assert rotation.due(FIRST_PAUSE, 9) == [0]


def test_of_several_that_are_due_only_those_asked_for_count_as_being_probed():
    rotation = Rotation(3)
    for number in range(3):
        rotation.failed(number, DOWN, 0.0)

    assert (rotation.due(1.0, 1), rotation.due(1.0, 9), rotation.due(1.0, 9)) == ([0], [1, 2], [])


def test_one_that_answers_a_probe_is_used_again():
    rotation = Rotation(2)
    rotation.failed(0, DOWN, 0.0)
    assert rotation.due(1.0, 9) == [0]
    rotation.worked(0, 1.0)

    assert {rotation.next(1.0), rotation.next(1.0)} == {0, 1}
    assert [state.error for state in rotation.states] == [None, None]


def test_one_that_passes_the_probe_and_fails_in_use_is_left_alone_for_longer_and_longer():
    rotation, now, pauses = Rotation(2), 0.0, []
    for _ in range(4):
        rotation.failed(0, DOWN, now)
        pauses.append(rotation.states[0].pause)
        now = rotation.states[0].probe_at
        assert rotation.due(now, 9) == [0]
        rotation.worked(0, now)
    rotation.failed(0, DOWN, now + 31)

    assert pauses == [FIRST_PAUSE * 2**n for n in range(4)]
    assert rotation.states[0].pause == FIRST_PAUSE


def test_when_all_are_left_alone_it_says_for_how_long_and_why():
    rotation = Rotation(2)
    rotation.failed(0, DOWN, 0.0)
    rotation.failed(1, DOWN, 0.05)
    answer = rotation.next(0.06)

    assert isinstance(answer, Wait)
    assert abs(answer.seconds - (FIRST_PAUSE - 0.06)) < 1e-9
    assert answer.error is DOWN


def test_while_one_is_probed_the_others_wait_and_do_not_spin():
    rotation = Rotation(1)
    rotation.failed(0, DOWN, 0.0)
    assert rotation.due(5.0, 9) == [0]
    answer = rotation.next(5.0)

    assert isinstance(answer, Wait)
    assert abs(answer.seconds - FIRST_PAUSE) < 1e-9
