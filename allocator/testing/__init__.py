"""An allocator in memory for the tests of applications, with the same ids in every run.

    with MemoryAllocator() as ids:
        ids.next_id("order")        1

It uses no database, driver or thread. The pytest fixtures are `memory_allocator` and `async_memory_allocator`.
"""

from __future__ import annotations

from allocator.testing.allocators import AsyncMemoryAllocator, MemoryAllocator

__all__ = ["AsyncMemoryAllocator", "MemoryAllocator"]
