"""Speed of the allocator compared with alternatives: `make bench`.

rounds      one interleaved run: every round runs every candidate once, in rotated order
calls       one call of each kind, from one thread, from several, and awaited
claims      claims compared with the bare driver and with the database's own counters
latency     latency of a call at a steady rate, with and without claims in advance
service     requests per second compared with a bare ASGI application
bulk        rows per second of bulk loads, by who makes the ids
first_id    from the start of a process to its first id
start       the import, and the memory of many tags
"""
