"""Fixtures for the tests of applications, found by pytest by itself.

    def test_an_order_gets_an_id(memory_allocator):
        assert memory_allocator.next_id("order") == 1

Every run of pytest in an environment that has this package loads this file: it imports nothing before a fixture is
asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from allocator.testing import AsyncMemoryAllocator, MemoryAllocator


@pytest.fixture
def memory_allocator() -> Iterator[MemoryAllocator]:
    """An `Allocator` in memory, new for each test: its ids are the same in every run, from 1 on."""
    from allocator.testing import MemoryAllocator

    with MemoryAllocator() as ids:
        yield ids


@pytest.fixture
def async_memory_allocator(memory_allocator: MemoryAllocator) -> AsyncMemoryAllocator:
    """The `memory_allocator` of this test for asyncio: an ordinary fixture, which needs no plugin for asyncio."""
    from allocator.testing import AsyncMemoryAllocator

    return AsyncMemoryAllocator(memory_allocator)
