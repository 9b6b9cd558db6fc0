"""A connection to SQLite that ends its statements when it is closed.

SQLite keeps the locks of a closed connection until its last statement ends. An exception that interrupted a statement,
such as that of a signal handler, holds its cursor by the traceback: as long as anybody keeps the exception, no process
could write to the file.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import Any
from weakref import WeakSet


class Closing(sqlite3.Connection):
    """Closes its cursors before itself."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.cursors: WeakSet[sqlite3.Cursor] = WeakSet()

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        made = super().cursor(*args, **kwargs)
        self.cursors.add(made)
        return made

    def close(self) -> None:
        for one in list(self.cursors):
            with suppress(sqlite3.Error):  # one that is in use ends by itself
                one.close()
        super().close()
