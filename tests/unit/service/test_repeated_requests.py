"""Answers that are kept for requests that come again."""

from __future__ import annotations

from allocator.service.repeated_requests import WHOLE, Answer, Repeat, Repeats


def kept(repeats: Repeats, answer: Answer, request: bytes = b"a") -> Repeat:
    made = Repeat(request)
    repeats.keep({WHOLE: made}, answer)
    return made


def test_an_answer_has_the_lines_of_the_server():
    repeats, made = Repeats(), []
    repeat = kept(repeats, lambda lines, name: made.append(lines) or b"an answer")
    today = [(b"date", b"today"), (b"x", b"y")]

    assert repeats.answer(repeat, b"a", today) == repeats.answer(repeat, b"a", today) == b"an answer"
    assert repeats.answer(repeat, b"a", [(b"date", b"tomorrow")]) == b"an answer"
    assert made == [b"date: today\r\nx: y\r\n"] * 2 + [b"date: tomorrow\r\n"]


def test_another_request_or_one_without_an_answer_now_is_parsed():
    repeats = Repeats()

    assert repeats.answer(kept(repeats, lambda lines, name: None), b"a", []) is None
    assert repeats.answer(kept(repeats, lambda lines, name: b"an answer"), b"b", []) is None
    assert repeats.answer(Repeat(b"a"), b"a", []) is None
    assert repeats.answer(None, b"a", []) is None


def test_what_was_kept_ends_when_the_tokens_are_read():
    repeats = Repeats()
    repeat = kept(repeats, lambda lines, name: b"an answer")
    repeats.clear()

    assert repeats.answer(repeat, b"a", []) is None


def post(*lines: str) -> bytes:
    return "\r\n".join(["POST /v1/sequences/a/ids HTTP/1.1", "Host: x", *lines, "", ""]).encode()


def test_an_id_of_its_own_is_given_to_the_answer():
    for line, mine, answers in [
        ("X-Request-Id: a", "x-REQUEST-id: {}", False),
        ("X-Request-Id:a", "X-Request-Id: {}", False),
        ("X-Request-Id: a", "X-Request-Id: {}", True),
        ("x-request-id:a", "x-request-id:{}", True),
        ("X-Request-Id: \ta", "X-Request-Id: \t{}", False),
        ("X: X-Request-Id: a", "X: X-Request-Id: {}", False),
    ]:
        for trace in [(), ("traceparent: 1", "TraceState:a"), ("traceparent: 1-2", "TraceState:b=c,d")]:
            repeats = Repeats()
            before = post("traceparent: 1", "TraceState:a", line, "X: y") if trace else post(line, "X: y")
            repeat = kept(repeats, lambda lines, name: b"to " + name, before)

            for name in ("b", "c-1", "d" * 128):
                assert repeats.answer(repeat, post(*trace, mine.format(name), "X: y"), []) == (
                    f"to {name}".encode() if answers else None
                ), (line, trace)
            for request in (
                post(*trace, line, "X: z"),
                post(*trace, line),
                post(*trace, "X: y"),
                post("X: y", *trace, line),
            ):
                assert repeats.answer(repeat, request, []) is None, (line, trace)
