"""Tickets: how a database draws them, and the check of an id that REPLACE returns.

On MySQL and MariaDB the scheme is Flickr's ticket servers (2010): `REPLACE INTO` a table with one row a type, and
`LAST_INSERT_ID()`. Elsewhere a ticket is a claim of one id from a reserved tag of its type, and so it is on MySQL and
MariaDB where the database's row says so.
"""

from __future__ import annotations

from allocator.errors import MaxValueWentBack, ShardMisconfigured
from allocator.schemes.shared.residues import Residue

REPLACE, CLAIM = "replace", "claim"
"""How a database draws tickets."""
RESERVED = ".ticket:"
"""Begins the name of a reserved tag, before the type. A name of a user begins with a letter or digit."""


def check_ticket(ticket: int, residue: Residue, seen: int) -> int:
    """Raise `MaxValueWentBack` for a ticket that is not above `seen`, and `ShardMisconfigured` for one of another slot.
    A ticket that is not used is burnt."""
    if ticket <= seen:
        raise MaxValueWentBack(
            f"ticket {ticket} came after {seen}: the database lost ids, as after a restore; to skip them: allocator db "
            "mark-restored"
        )
    if (ticket - residue.offset) % residue.step:
        raise ShardMisconfigured(
            f"ticket {ticket} is not of this database, which is slot {residue.offset} of {residue.step}: something "
            "changed auto_increment_offset or auto_increment_increment of its session; let no proxy share it"
        )
    return ticket
