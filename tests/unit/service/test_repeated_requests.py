"""Answers that are kept for requests that come again."""

from __future__ import annotations

from allocator.service.repeated_requests import WHOLE, Answer, Repeat, Repeats


def kept(repeats: Repeats, answer: Answer) -> Repeat:
    made = Repeat(b"a")
    repeats.keep({WHOLE: made}, answer)
    return made


def test_an_answer_has_the_lines_of_the_server():
    repeats, made = Repeats(), []
    repeat = kept(repeats, lambda lines: made.append(lines) or b"an answer")
    today = [(b"date", b"today"), (b"x", b"y")]

    assert repeats.answer(repeat, b"a", today) == repeats.answer(repeat, b"a", today) == b"an answer"
    assert repeats.answer(repeat, b"a", [(b"date", b"tomorrow")]) == b"an answer"
    assert made == [b"date: today\r\nx: y\r\n"] * 2 + [b"date: tomorrow\r\n"]


def test_another_request_or_one_without_an_answer_now_is_parsed():
    repeats = Repeats()

    assert repeats.answer(kept(repeats, lambda lines: None), b"a", []) is None
    assert repeats.answer(kept(repeats, lambda lines: b"an answer"), b"b", []) is None
    assert repeats.answer(Repeat(b"a"), b"a", []) is None
    assert repeats.answer(None, b"a", []) is None


def test_what_was_kept_ends_when_the_tokens_are_read():
    repeats = Repeats()
    repeat = kept(repeats, lambda lines: b"an answer")
    repeats.clear()

    assert repeats.answer(repeat, b"a", []) is None
