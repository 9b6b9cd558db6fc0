"""The allocator in memory does what one on a database does: one story on both, word for word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allocator import Allocator
from allocator.errors import AllocatorError
from allocator.rules.fleet_consistency import STATEMENTS
from allocator.testing import MemoryAllocator
from allocator.testing.allocators import SynchronousBackground


class AtOnceAllocator(Allocator):
    """On a database, with its claims made where they are asked for: when they are made is no accident then."""

    __slots__ = ()
    _background_type = SynchronousBackground


Call = Callable[[Allocator], Any]

names = st.sampled_from(["a", "b"])
small = st.integers(1, 40)
numbers = st.one_of(small, st.sampled_from([0, -1, 10**4, 10**9]))


def called(method: str, *args: st.SearchStrategy[Any], **given_: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.tuples(st.just(method), st.tuples(*args), st.fixed_dictionaries({}, optional=given_))


calls = st.lists(
    st.one_of(
        called("next_id", names),
        called("next_ids", names, numbers),
        called("reserve", names, numbers),
        called("ticket", names),
        called("tags.create", names, step=numbers, limit=numbers, start_after=numbers, max_step=numbers),
        called("tags.set", names, step=numbers, limit=numbers, start_after=numbers, failover_gap=numbers),
        called("tags.repair", names, above=numbers.filter(lambda number: number > 0)).filter(lambda call: call[2]),
        called("tags.get", names),
        called("tags.list"),
        called("tags.count"),
    ),
    min_size=5,
    max_size=30,
)


def answer(ids: Allocator, method: str, args: tuple[Any, ...], given_: dict[str, Any]) -> str:
    target: Any = ids
    for part in method.split("."):
        target = getattr(target, part)
    try:
        return repr(target(*args, **given_)).partition(", skipped=")[0]
    except AllocatorError as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=25)
@given(calls, st.booleans(), st.sampled_from(STATEMENTS))
def test_a_story_is_told_alike_in_memory_and_on_a_database(story, create_missing: bool, tickets: str):
    rules = {"create_missing": create_missing, "step": 7, "max_step": 30, "tickets": tickets}
    with AtOnceAllocator("sqlite://", runway=0.0, **rules) as real, MemoryAllocator(**rules) as memory:
        for call in story:
            assert answer(memory, *call) == answer(real, *call), call
