"""The id schemes, as pure decisions on plain numbers: no clock, lock, thread, socket or SQL."""
