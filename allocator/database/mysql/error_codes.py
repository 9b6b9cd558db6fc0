"""What the error codes of MySQL and MariaDB mean."""

from __future__ import annotations

from allocator.database.driver_errors import (
    DEADLOCK,
    DRAWN_MEANWHILE,
    NO_WRITES,
    ROLLED_BACK,
    ErrorCodes,
)
from allocator.errors import (
    DatabaseRefused,
    Exhausted,
    MaxValueWentBack,
    NumberConflict,
    SchemaDamaged,
    SchemaOutOfDate,
)

UNSAID = frozenset({"1064", "1142", "1143", "1193", "1227", "1235", "1305", "1370"})
"""A server or proxy refuses a variable or function, or lacks it: connect without the identity of the server."""
NO_COUNTER = "1467"
"""MariaDB cannot read the counter while another session has locked a row; MySQL also says so after the last number."""
OUT_OF_RANGE = frozenset({"1264", "1690", "3819", "4025"})

CODES = ErrorCodes(
    errors={
        "1062": MaxValueWentBack,
        **dict.fromkeys(("1044", "1045", "1049", "1698", *UNSAID), DatabaseRefused),
        **dict.fromkeys(("1054", "1146"), SchemaOutOfDate),
        **dict.fromkeys(OUT_OF_RANGE, SchemaDamaged),
        "167": Exhausted,
    },
    advice={NO_COUNTER: "{where}: the lock of the counter of tickets, or of nodes, was not free: {words}; try again"},
    of_draw={
        "1206": (NumberConflict, ROLLED_BACK),  # no memory for locks
        "1213": (NumberConflict, DEADLOCK),
        "1180": (NumberConflict, DEADLOCK),  # where Group Replication's applier takes the row
        **dict.fromkeys(("1020", "3101"), (NumberConflict, DRAWN_MEANWHILE)),
        **dict.fromkeys(("1290", "1792", "1836"), (DatabaseRefused, NO_WRITES)),
    },
    locked=frozenset({"1205"}),
    rolled_back=frozenset({"1020", "1206", "1213"}),
    timed_out=frozenset({"1205"}),
    out_of_range=OUT_OF_RANGE,
    contended=frozenset({"1213", "1205", "1020", "3101"}),
    misplaced=frozenset({"1047", "1180", "1290", "1792", "1836", "3100"}),
    forbidden=frozenset({"1142", "1143"}),
)
