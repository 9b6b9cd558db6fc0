"""A fixture for the tests of applications. pytest finds it by itself.

    def test_an_order_gets_an_id(memory_allocator):
        assert memory_allocator.next_id("order") == 1

Every run of pytest with this package installed loads this file, so it imports the package only inside the fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from allocator.testing import MemoryAllocator


@pytest.fixture
def memory_allocator() -> Iterator[MemoryAllocator]:
    """An `Allocator` in memory, new for each test. Its ids start at 1 and are the same in every run."""
    from allocator.testing import MemoryAllocator

    with MemoryAllocator() as ids:
        yield ids
