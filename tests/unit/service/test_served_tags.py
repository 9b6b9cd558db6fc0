"""Names that callers make up: one is made at a time, and shards that are away do not count."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from allocator.errors import AllocatorError, DatabaseUnavailable, UnknownTag
from allocator.service.served_tags import CreationLimit, ticket_types

AWAY = DatabaseUnavailable("it does not answer")


def fleet(*shards: set[str] | None) -> Any:
    """The types of each shard; None for one that is away. The last one fails only when it is used."""

    def database(types: set[str] | None) -> Any:
        def run(verb: Any, kind: str) -> int | None:
            if types is None:
                raise AWAY
            return None if kind in types else len(types)

        return SimpleNamespace(run=run)

    troubles: list[AllocatorError | None] = [AWAY if types is None else None for types in shards[:-1]]
    return SimpleNamespace(
        open=lambda: None, databases=lambda: [database(one) for one in shards], troubles=lambda: [*troubles, None]
    )


def test_a_type_exists_when_one_shard_has_it():
    assert ticket_types(fleet({"a"}, {"a", "b"}), "b") is None
    assert ticket_types(fleet({"a"}, {"a", "b"}), "c") == 2
    assert ticket_types(fleet(None, {"a", "b"}), "b") is None
    assert ticket_types(fleet({"a"}, None), "b") == 1
    with pytest.raises(DatabaseUnavailable):
        ticket_types(fleet(None, None), "a")


def test_together_no_more_are_made_than_there_may_be():
    there: set[str] = set()

    async def make(name: str) -> str:
        await asyncio.sleep(0)
        there.add(name)
        return name

    async def count() -> int:
        await asyncio.sleep(0)
        return len(there)

    async def story() -> list[Any]:
        creation_limit = CreationLimit(3, 5.0)
        names = [f"name-{number}" for number in range(10)]
        calls = [creation_limit.make("type", name, count, lambda name=name: make(name)) for name in names]
        return await asyncio.gather(*calls, return_exceptions=True)

    found = asyncio.run(story())

    assert found[:3] == ["name-0", "name-1", "name-2"]
    assert {type(error) for error in found[3:]} == {UnknownTag}
    assert len(there) == 3
