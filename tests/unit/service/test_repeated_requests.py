"""Answers that are kept for requests that come again."""

from __future__ import annotations

from allocator.service.repeated_requests import MAX_REPEATS, WHOLE, Repeats


def test_an_answer_has_the_lines_of_the_server():
    repeats, made = Repeats(), []
    repeats.keep({WHOLE: b"a"}, lambda lines: made.append(lines) or b"an answer")
    today = [(b"date", b"today"), (b"x", b"y")]

    assert repeats.answer(b"a", today) == repeats.answer(b"a", today) == b"an answer"
    assert repeats.answer(b"a", [(b"date", b"tomorrow")]) == b"an answer"
    assert made == [b"date: today\r\nx: y\r\n"] * 2 + [b"date: tomorrow\r\n"]


def test_another_request_or_one_without_an_answer_now_is_parsed():
    repeats = Repeats()
    repeats.keep({WHOLE: b"a"}, lambda lines: None)

    assert repeats.answer(b"a", []) is None
    assert repeats.answer(b"b", []) is None


def test_no_more_are_kept_than_a_number():
    repeats = Repeats()
    for number in range(MAX_REPEATS + 1):
        repeats.keep({WHOLE: b"%d" % number}, lambda lines: b"an answer")

    kept = [repeats.answer(b"%d" % number, []) for number in range(MAX_REPEATS + 1)]
    assert kept == [None] * MAX_REPEATS + [b"an answer"]
    repeats.clear()
    assert repeats.answer(b"%d" % MAX_REPEATS, []) is None
