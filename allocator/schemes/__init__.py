"""The id schemes, as decisions on plain numbers: no lock, thread, socket or SQL; callers bring the clocks."""
