"""Tickets: how a database draws them, the ids of each shard, and the check of an id that REPLACE returns.

On MySQL and MariaDB the scheme is Flickr's ticket servers (2010): `REPLACE INTO` a table with one row a type, and
`LAST_INSERT_ID()`. Elsewhere a ticket is a claim of one id from a reserved tag of its type, and so it is on MySQL and
MariaDB where the database's row says so.

Shard `offset` of `step` issues offset, offset + step, offset + 2 step, and so on: no two shards issue the same id.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.errors import MaxValueWentBack, ShardMisconfigured
from allocator.schemes.shared.argument_checks import MAX_ID, quoted

REPLACE, CLAIM = "replace", "claim"
"""How a database draws tickets."""
RESERVED = ".ticket:"
"""Begins the name of a reserved tag, before the type. A name of a user begins with a letter or digit."""

MAX_SHARDS = 1000
"""Each shard has one id in `step`: with 1000 shards, each still has 9 * 10**15 ids below 2**63."""


@dataclass(frozen=True, slots=True)
class ShardNumbering:
    """The ids of one shard in one generation of its fleet: from `floor`, and below `ceiling` if set."""

    offset: int = 1
    step: int = 1
    floor: int = 1
    ceiling: int | None = None

    def checked(self) -> ShardNumbering:
        for name, value, low, high in (
            ("step", self.step, 1, MAX_SHARDS),
            ("offset", self.offset, 1, self.step),
            ("floor", self.floor, 1, MAX_ID),
        ):
            if type(value) is not int or not low <= value <= high:
                raise ShardMisconfigured(
                    f"{name} must be {low} to {high}, got {quoted(value)}; restore the row of allocator_shard"
                )
        return self

    def following(self, value: int) -> int:
        """The first id of this shard that is greater than `value`."""
        least = max(value + 1, self.floor)
        return least + (self.offset - least) % self.step

    def judge(self, ticket: int, seen: int) -> bool:
        """Whether a ticket may be used; False when the shard has reached its ceiling.

        Raises `MaxValueWentBack` for a ticket that is not above `seen`, and `ShardMisconfigured` for one that is not
        of this shard. A ticket that is not used is burnt.
        """
        if ticket <= seen:
            raise MaxValueWentBack(
                f"ticket {ticket} came after {seen}: the database lost ids, as after a restore; "
                "raise it above every id in use with: allocator shards trust URL"
            )
        if (ticket - self.offset) % self.step or ticket < self.floor:
            raise ShardMisconfigured(
                f"ticket {ticket} is not of this shard, which has offset {self.offset}, step {self.step} and floor "
                f"{self.floor}: the auto-increment of its table was changed by hand; to continue above the tickets of "
                "every shard, run: allocator shards trust URL"
            )
        return self.ceiling is None or ticket < self.ceiling
