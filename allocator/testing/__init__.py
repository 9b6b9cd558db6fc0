"""For the tests of applications: the allocator in memory, with ids that are the same in every run.

    with MemoryAllocator() as ids:
        ids.next_id("order")        1

No database, driver or thread has a part in it. As a fixture of pytest: `memory_allocator`, `async_memory_allocator`.
"""

from __future__ import annotations

from allocator.testing.allocators import AsyncMemoryAllocator, MemoryAllocator

__all__ = ["AsyncMemoryAllocator", "MemoryAllocator"]
