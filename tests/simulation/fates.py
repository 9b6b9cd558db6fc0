"""How a statement may end. A plan says which ones end how; all others end well."""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    WELL = "well"
    REFUSED = "refused"
    """It never reached the server, and the client learns that at once."""
    STALE = "stale"
    """The connection had been lost before: the statement is sent again."""
    CUT = "cut"
    """It was committed, and the connection is lost at once: it is sent again, and claims twice."""
    UNKNOWN = "unknown"
    """It was committed, and the answer never comes."""
    SWALLOWED = "swallowed"
    """It never reached the server, and no answer comes."""
    GHOST = "ghost"
    """It reaches the server when its client has given up, and is committed then."""
    ROLLED_BACK = "rolled back"
    """The commit fails."""
    DEADLOCK = "deadlock"
    """The server ends it, for another one's sake: it is run again."""
    WARNING = "warning"
    """It was committed, with a warning: no standby has it."""
    OPEN = "left open"
    """Its session does not commit by itself: the answer comes, and all is undone when the connection ends."""
    SLOW = "slow"
    """It takes nearly as long as it may."""
    SURPRISE = "surprise"
    """A hook of the user's raises after the commit what no driver does."""


AFTER_COMMIT = {Fate.CUT, Fate.UNKNOWN, Fate.WARNING, Fate.SURPRISE}
"""The range is claimed, and nobody may use it."""
