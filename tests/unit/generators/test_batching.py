"""Refills that come at one moment are claimed together; each has its own end."""

from __future__ import annotations

from contextlib import suppress
from contextvars import ContextVar, copy_context
from functools import partial
from queue import Empty, Queue, SimpleQueue
from threading import Event

import pytest
from support.memory.database import MemorySource

from allocator import Allocator
from allocator.errors import AllocatorClosed, DatabaseRefused, DatabaseUnavailable, Exhausted, UnknownTag
from allocator.generators import batching
from allocator.generators.batching import MAX_BATCH, REST, STRIKES, TRIES, TURNS, Batching
from allocator.generators.supply import Terms
from allocator.runtime.thread_pool import Background, Work
from allocator.schemes.tag import Tag
from allocator.sync import Sequence, Sequences


class Held(Background):
    """Keeps what is submitted until it is told to go on."""

    has_threads = True

    def __init__(self) -> None:
        super().__init__()
        self.held: list = []

    def submit(self, call, *args):
        if self.closed.is_set():
            raise AllocatorClosed
        work = Work(partial(call, *args))
        self.held.append(work)
        return work.future

    def go_on(self) -> None:
        while self.held:
            self.held.pop(0).run()


class Many:
    """Tags of one process, of which claims are carried out when they are told to."""

    def __init__(self, **settings) -> None:
        self.source = MemorySource(**settings)
        self.background = Held()
        self.terms = Terms(create_missing=True, runway=60.0, timeout=0.05)
        self.batching = Batching(self.source, self.background, self.terms.timeout)

    def tag(self, name: str) -> Sequence:
        return Sequence(
            Tag(name), self.source, self.background, self.terms, Sequences(self.tag), batching=self.batching
        )

    def opened(self, count: int) -> list[Sequence]:
        tags = [self.tag(f"tag{number}") for number in range(count)]
        for one in tags:
            one._advance()
            self.background.go_on()
            assert one._advance() == 1
            self.background.go_on()
        self.source.batches.clear()
        return tags


def asked(tags: list[Sequence]) -> list:
    """Each gives the last id it has, and asks for more: what to wait for then."""
    assert [one._advance() for one in tags] == [2] * len(tags)
    return [one._advance() for one in tags]


def test_what_gathered_is_claimed_at_once():
    many = Many(step=1, max_step=1)
    tags = many.opened(5)
    waits = asked(tags)
    assert many.source.batches == [] == [one for one in waits if one.done()]
    many.background.go_on()

    assert many.source.batches == [[one.tag for one in tags]]
    assert [one._advance() for one in tags] == [3] * 5
    assert all(wait.done() for wait in waits)


caller: ContextVar[str] = ContextVar("caller", default="nobody")


def advance_as(name: str, tag: Sequence) -> object:
    return copy_context().run(lambda: (caller.set(name), tag._advance())[1])


def noting_callers(many: Many, monkeypatch: pytest.MonkeyPatch, verb: str) -> list[str]:
    """Who calls this verb of the database."""
    found, work = [], getattr(many.source, verb)

    def call(*args):
        found.append(caller.get())
        return work(*args)

    monkeypatch.setattr(many.source, verb, call)
    return found


def test_a_batch_runs_in_the_context_of_the_first_caller_that_waits(monkeypatch):
    many = Many(step=1, max_step=1)
    tags = [*many.opened(1), many.tag("first"), many.tag("second")]
    for name in ("first", "second"):
        many.source.open_segment(Tag(name), create=True)
    found = noting_callers(many, monkeypatch, "claim_segments")
    assert advance_as("in advance", tags[0]) == 2
    advance_as("first", tags[1])
    advance_as("second", tags[2])
    many.background.go_on()

    assert many.source.batches == [["tag0", "first", "second"]]
    assert found == ["first"]


def test_a_claim_has_the_context_of_its_caller_and_none_in_advance(monkeypatch):
    many = Many(step=1, max_step=1)
    found, tag = noting_callers(many, monkeypatch, "claim_segment"), many.tag("order")
    advance_as("waiting", tag)
    many.background.go_on()
    assert advance_as("served", tag) == 1
    many.background.go_on()

    assert found == ["waiting", "nobody"]


def test_one_alone_is_claimed_alone():
    many = Many(step=1, max_step=1)
    (one,) = many.opened(1)
    asked([one])
    many.background.go_on()

    assert many.source.batches == []
    assert one._advance() == 3


def test_tags_whose_rows_were_not_read_are_read_together_and_made_alone():
    many = Many(step=2, max_step=2)
    many.source.open_segment(Tag("there"), create=True)
    many.source.open_segment(Tag("too"), create=True)
    tags = [many.tag(name) for name in ("there", "missing", "too")]
    for one in tags:
        one._advance()
    many.background.go_on()

    assert many.source.batches == [["there", "too"]]
    assert [len(found) for found in many.source.claims] == [2, 2, 2], "the step of the row"
    assert [one._advance() for one in tags] == [1, 1, 1]


def test_no_more_than_that_many_are_claimed_at_once():
    many = Many(step=1, max_step=1)
    asked(many.opened(MAX_BATCH + 5))
    many.background.go_on()

    assert [len(batch) for batch in many.source.batches] == [MAX_BATCH, 5]


def test_a_database_that_is_away_ends_all_and_another_error_is_found_out_one_by_one():
    for error, claims in [(DatabaseUnavailable("away"), 2), (Exhausted("full"), 3), (DatabaseRefused("this row"), 3)]:
        many = Many(step=1, max_step=1)
        waits = asked(many.opened(2))
        many.source.attempts, many.source.failure = 0, error
        many.background.go_on()

        assert many.source.attempts == claims, error
        assert [type(wait.result(0)) for wait in waits] == [type(error)] * 2, error
        assert many.batching._strikes == 0, error


def test_a_row_that_is_refused_is_no_other_tags_error(monkeypatch):
    many = Many(step=1, max_step=1)
    tags, claim = many.opened(3), many.source.claim_segment

    def refused(*claims):
        raise DatabaseRefused("a trigger")

    def claimed(name, *args, **options):
        return refused() if name == "tag0" else claim(name, *args, **options)

    monkeypatch.setattr(many.source, "claim_segments", refused)
    monkeypatch.setattr(many.source, "claim_segment", claimed)
    waits = asked(tags)
    many.background.go_on()

    assert [type(wait.result(0)) for wait in waits] == [DatabaseRefused, type(None), type(None)]
    assert [one._advance() for one in tags[1:]] == [3, 3]


@pytest.mark.parametrize("error", [DatabaseUnavailable("of words that it does not know"), DatabaseRefused("so")])
def test_where_only_batches_fail_each_is_claimed_alone_and_after_a_while_nothing_else_is_tried(error, monkeypatch):
    many = Many(step=1, max_step=1)
    tags, tried = many.opened(3), []

    def unknown(claims):
        tried.append(list(claims))
        raise error

    monkeypatch.setattr(many.source, "claim_segments", unknown)
    for expected in range(2, 10):
        assert [one._advance() for one in tags] == [expected] * 3
        many.background.go_on()

    assert len(tried) == STRIKES


def test_after_a_minute_batches_are_tried_again(monkeypatch):
    """An outage that met three of them has passed."""
    many = Many(step=1, max_step=1)
    tags, now = many.opened(3), 0.0
    working = many.source.claim_segments
    monkeypatch.setattr(batching, "monotonic", lambda: now)
    monkeypatch.setattr(many.source, "claim_segments", lambda claims: working(None))
    for expected in range(2, 6):
        assert [one._advance() for one in tags] == [expected] * 3
        many.background.go_on()
    monkeypatch.setattr(many.source, "claim_segments", working)
    many.source.batches.clear()
    for now, expected in ((REST - 1, 6), (REST + 1, 7)):
        assert [one._advance() for one in tags] == [expected] * 3
        many.background.go_on()

    assert many.source.batches == [["tag0", "tag1", "tag2"]]


@pytest.mark.parametrize("error", [RuntimeError("a defect"), SystemExit(3)])
def test_whatever_comes_out_of_a_batch_ends_the_wait(error, monkeypatch):
    many = Many(step=1, max_step=1)
    tags = many.opened(2)
    waits = asked(tags)

    def broken(claims):
        raise error

    monkeypatch.setattr(many.source, "claim_segments", broken)
    with suppress(SystemExit):
        many.background.go_on()

    assert all(wait.done() for wait in waits)


def test_an_exception_that_hits_a_thread_ends_all_that_wait_for_it(monkeypatch):
    for place in ("turn", "pause"):
        many = Many(step=1, max_step=1)
        tags, background = many.opened(3), many.background

        def hit(*args, background=background, **timeout) -> None:
            background.go_on()  # the others leave theirs to this thread
            raise MemoryError

        wait = (NoTurn, "get") if place == "turn" else (background.closed, "wait")
        with monkeypatch.context() as hitting:
            hitting.setattr(*wait, hit)
            hitting.setattr(many.batching, "_turns", NoTurn())
            hitting.setattr(many.source, "claim_segments", lambda claims: {})
            waits = asked(tags)
            background.go_on()

        assert [str(wait.result(0)) for wait in waits] == ["a claim failed with MemoryError: "] * 3, place
        assert isinstance(many.batching._turns, SimpleQueue), "new turns: this one may have had one"


def test_a_tag_that_is_skipped_is_gathered_again_and_claimed_alone_in_the_end(monkeypatch):
    many = Many(step=1, max_step=1)
    tags = many.opened(5)
    claimed, batches = many.source.claim_segments, []

    def locked(claims):
        batches.append(list(claims))
        free = [name for name in claims if name not in ("tag0", "tag1")][:1]
        return claimed({name: claims[name] for name in free})

    monkeypatch.setattr(many.source, "claim_segments", locked)
    asked(tags)
    many.background.go_on()

    assert batches == [
        ["tag0", "tag1", "tag2", "tag3", "tag4"],
        ["tag0", "tag1", "tag3", "tag4"],
        ["tag0", "tag1", "tag4"],
        *[["tag0", "tag1"]] * (TRIES - 3),
    ]
    assert [one._advance() for one in tags] == [3] * 5


def test_without_threads_each_is_claimed_alone_at_once(monkeypatch):
    """A signal handler may have interrupted the claim of another tag."""
    many = Many(step=1, max_step=1)
    tags = many.opened(2)
    monkeypatch.setattr(Held, "has_threads", False)
    many.batching._is_awaited.acquire()
    asked(tags)
    many.background.go_on()

    assert many.source.batches == []
    assert [one._advance() for one in tags] == [3, 3]


def test_what_is_needed_while_two_statements_are_under_way_is_claimed_together(monkeypatch):
    """And nothing of it waits longer than its turn does."""
    many = Many(step=1, max_step=1)
    tags = many.opened(5)
    claim, under_way, turn = many.source.claim_segment, Queue(), Event()

    def slow(*args):
        under_way.put(args)
        assert turn.wait(30)
        return claim(*args)

    monkeypatch.setattr(many.source, "claim_segment", slow)
    monkeypatch.setattr(many.batching, "_patience", 30.0)
    many.batching._background = Background()
    many.batching._background.submit(int)  # the first claim of a pool does not wait for a turn
    for one in tags[:TURNS]:
        asked([one])
        under_way.get(timeout=30)
    waits = asked(tags[TURNS:])
    turn.set()

    assert [wait.result(30) for wait in waits] == [None] * 3
    assert many.source.batches == [["tag2", "tag3", "tag4"]]
    many.batching._background.close(30)


class NoTurn:
    """In place of the turns: none comes in time."""

    def __init__(self) -> None:
        self.waited: list[float] = []
        self.given = 0

    def qsize(self) -> int:
        return self.given

    def put(self, turn: None) -> None:
        self.given += 1

    def get(self, timeout: float) -> None:
        self.waited.append(timeout)
        raise Empty


def test_a_claim_whose_turn_does_not_come_is_made_all_the_same():
    many = Many(step=1, max_step=1)
    tags = many.opened(2)
    many.batching._turns = turns = NoTurn()
    asked(tags)
    many.background.go_on()

    assert many.source.batches == [["tag0", "tag1"]]
    assert turns.waited == [0.05 / 20]
    assert turns.given == 1, "a turn in place of that of a statement that takes so long"


@pytest.mark.parametrize("error", [None, RuntimeError("a defect"), SystemExit(3)])
def test_a_turn_is_given_back_however_a_claim_ends(error, monkeypatch):
    many = Many(step=1, max_step=1)
    tags = many.opened(3)
    many.source.failure = error
    for some in (tags[:1], tags[1:]):
        asked(some)
        with suppress(SystemExit):
            many.background.go_on()

    assert many.batching._turns.qsize() == TURNS


def test_a_tag_that_is_unknown_is_unknown_to_its_caller_alone():
    many = Many(step=1, max_step=1)
    many.terms = Terms(create_missing=False, runway=60.0, timeout=0.05)
    many.source.open_segment(Tag("there"), create=True)
    many.source.open_segment(Tag("too"), create=True)
    tags = [many.tag(name) for name in ("there", "missing", "too")]
    waits = [one._advance() for one in tags]
    many.background.go_on()

    assert isinstance(waits[1].result(0), UnknownTag)
    assert [tags[0]._advance(), tags[2]._advance()] == [1, 1]


def test_a_request_that_was_given_up_and_asked_again_is_claimed_twice_and_served_once():
    """Both wait for one thread: the second of a tag is claimed alone, and what came for the first is burnt."""
    many = Many(step=1, max_step=1)
    tags = many.opened(2)
    asked(tags)
    pace = tags[0]._core.pace
    pace._begun_at = 0.0
    pace.failed(pace.under_way, DatabaseUnavailable("given up"), 0.0)
    tags[0]._advance()
    many.background.go_on()

    first = tags[0]._advance()
    assert first > 2
    assert tags[1]._advance() == 3


def test_a_tag_that_is_twice_in_a_batch_is_claimed_once_for_each():
    many = Many(step=1, max_step=1)
    opened, one = many.opened(2), many.tag("tag0")
    waits = [one._advance(), *asked(opened)]
    many.background.go_on()
    drawn = [sequence._advance() for sequence in (one, opened[0])]

    assert all(wait.done() for wait in waits)
    assert sorted(drawn) == [3, 4]


def test_what_waited_before_a_fork_is_not_claimed_in_the_child():
    many = Many(step=1, max_step=1)
    asked(many.opened(3))
    many.batching.renew()
    before = many.source.attempts
    many.background.go_on()

    assert many.source.attempts == before


def test_an_allocator_that_is_forked_forgets_what_waited(tmp_path):
    with Allocator(f"sqlite:///{tmp_path}/ids.db") as ids:
        ids._batching._waiting.append((Many().tag("parents"), None))
        ids.after_fork()

        assert not ids._batching._waiting


def test_a_backend_without_batches_claims_each_tag_alone():
    """A service makes batches of the claims of its clients itself."""
    many = Many(step=1, max_step=1)
    tags = many.opened(3)
    many.source.has_batches = False
    asked(tags)
    many.background.go_on()

    assert many.source.batches == []
    assert [one._advance() for one in tags] == [3, 3, 3]
