"""`manage.py allocator`."""
