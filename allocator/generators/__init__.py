"""The generators of ids in this process, with the I/O that the pure schemes need."""
