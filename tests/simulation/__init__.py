"""A simulated world for the real code: one seed decides every clock, thread, network, server and crash in it."""
