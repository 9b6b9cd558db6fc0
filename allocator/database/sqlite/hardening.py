"""What an operator adds to the tables of SQLite: the triggers of the guard. A file has no users."""

from __future__ import annotations

from allocator.database.schema.guard import DELETE, FALL, RENAME, REPLACED, Guard, Trigger, squeezed

TRIGGERS = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'allocator_segment'"
IS_THERE = " WHEN EXISTS (SELECT 1 FROM allocator_segment WHERE tag = NEW.tag)"
"""On SQLite REPLACE deletes the row without firing the DELETE trigger, and inserts another."""


def trigger(name: str, event: str, condition: str, sentence: str) -> Trigger:
    made = f"CREATE TRIGGER {name} BEFORE {event} ON allocator_segment{condition}\nBEGIN"
    made = f"{made} SELECT RAISE(ABORT, '{sentence}'); END"
    return Trigger(name, made, (squeezed(made),))


GUARD = Guard(
    (
        trigger("allocator_guard_fall", "UPDATE", " WHEN NEW.max_value < OLD.max_value", FALL),
        trigger("allocator_guard_rename", "UPDATE", " WHEN NEW.tag IS NOT OLD.tag", RENAME),
        trigger("allocator_guard_delete", "DELETE", "", DELETE),
        trigger("allocator_guard_replace", "INSERT", IS_THERE, REPLACED),
    ),
    TRIGGERS,
)
