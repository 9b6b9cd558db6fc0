"""The HTTP client: an allocator that draws its ids from a service."""
