"""One allocator for a process: made once, lent, closed."""

from __future__ import annotations

import gc
import threading

from allocator.integrations.one_per_process import Holder


class Fake:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_it_is_made_when_it_is_asked_for_and_once():
    made: list[Fake] = []
    holder = Holder(lambda: made.append(Fake()) or made[-1])

    assert made == []
    assert holder.get() is holder.get() is made[0]
    assert holder.has_made(made[0])
    assert len(made) == 1


def test_of_two_that_are_made_at_once_one_is_kept_and_the_other_closed():
    made: list[Fake] = []
    both = threading.Barrier(2)

    def make() -> Fake:
        fresh = Fake()
        made.append(fresh)
        both.wait(10)
        return fresh

    holder, got = Holder(make), []
    threads = [threading.Thread(target=lambda: got.append(holder.get())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got[0] is got[1]
    assert [one.closed for one in made if one is not got[0]] == [True]
    assert not got[0].closed


def test_another_is_lent_and_left_open():
    holder, other = Holder(Fake), Fake()
    own = holder.get()
    with holder.use(other):
        assert holder.get() is other
        assert not holder.has_made(other)

    assert holder.get() is own
    assert not other.closed


def test_it_is_forgotten_open_and_closed_with_its_holder():
    holder = Holder(Fake)
    first = holder.get()
    holder.forget()
    second = holder.get()

    assert second is not first
    assert [first.closed, second.closed] == [False, False]

    del holder
    gc.collect()

    assert [first.closed, second.closed] == [False, True]
