"""What the error codes of SQLite mean."""

from __future__ import annotations

from allocator.database.driver_errors import DRAWN_MEANWHILE, GUARD_FIRED, NO_WRITES, ErrorCodes
from allocator.errors import (
    DatabaseRefused,
    Exhausted,
    MaxValueWentBack,
    NumberConflict,
    SchemaDamaged,
    SchemaOutOfDate,
)

GUARDED = "SQLITE_CONSTRAINT_TRIGGER"
"""SQLite's code for RAISE() in a trigger, as those of the guard do; a trigger cannot choose another."""
OUT_OF_RANGE = frozenset({"SQLITE_CONSTRAINT_CHECK"})
MOVED = "SQLITE_BUSY_SNAPSHOT"
BUSY = frozenset({"SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_TIMEOUT", MOVED})
LOCKED = frozenset({"SQLITE_LOCKED", "SQLITE_LOCKED_SHAREDCACHE", "SQLITE_LOCKED_VTAB"})

CODES = ErrorCodes(
    errors={
        **dict.fromkeys(("SQLITE_CONSTRAINT_PRIMARYKEY", "SQLITE_CONSTRAINT_UNIQUE", GUARDED), MaxValueWentBack),
        **dict.fromkeys(("SQLITE_CANTOPEN", "SQLITE_ERROR", "SQLITE_NOTADB", "SQLITE_READONLY"), DatabaseRefused),
        **dict.fromkeys(("no such table", "no such column"), SchemaOutOfDate),
        **dict.fromkeys(OUT_OF_RANGE, SchemaDamaged),
        "SQLITE_MISMATCH": Exhausted,  # of a counter past 2**63, which became a REAL
    },
    advice={GUARDED: GUARD_FIRED},
    of_draw={MOVED: (NumberConflict, DRAWN_MEANWHILE), "SQLITE_READONLY": (DatabaseRefused, NO_WRITES)},
    locked=BUSY | LOCKED,
    contended=BUSY,
    out_of_range=OUT_OF_RANGE,
)
