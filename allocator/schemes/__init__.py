"""The schemes themselves: pure decisions on plain numbers; no clock, lock, thread, socket or SQL."""
