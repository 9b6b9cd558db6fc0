"""Optional: how the allocator fits into what an application is made with."""
