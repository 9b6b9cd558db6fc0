"""How fast the ids come, beside what people would take instead: `make bench`.

rounds      one interleaved run: every round runs every candidate once, in rotated order
calls       a call of each kind, from one thread, from several, and awaited
claims      what the database does: claims beside the bare driver and beside its own counters
latency     how long a call takes at a steady rate, with and without the claim in advance
service     requests a second beside a bare ASGI application
start       the import, and the memory of many tags
capacity    a model of ten thousand processes, on the real rules and a simulated database
"""
