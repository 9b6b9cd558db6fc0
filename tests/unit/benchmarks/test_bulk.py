"""What docs/integrations.md says of bulk loads in NumPy."""

from __future__ import annotations

import pytest

from allocator.testing import MemoryAllocator


@pytest.mark.parametrize("first", [1, 2**62])
def test_a_block_is_an_array_of_numpy_without_a_list(first):
    numpy = pytest.importorskip("numpy")
    with MemoryAllocator() as ids:
        ids.tags.create("item", start_after=first - 1)
        block = ids.reserve("item", 1000)
    array = numpy.arange(block.start, block.stop, block.step)

    assert (block.start, array.dtype) == (first, numpy.int64)
    assert array.tolist() == list(block)
    striped = range(first, first + 3000, 3)  # a block of one of three shards
    assert numpy.arange(striped.start, striped.stop, striped.step).tolist() == list(striped)
