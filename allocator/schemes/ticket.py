"""The ID table: which ids are a shard's own, and whether one that came from there may be used.

Shard `offset` of `step` gives the ids offset, offset + step, offset + 2 step, ... and so no two shards give the same.
The scheme is Flickr's ticket servers (2010): `REPLACE INTO` a table with one row a type, and `LAST_INSERT_ID()`.
"""

from __future__ import annotations

from dataclasses import dataclass

from allocator.errors import MaxValueWentBack, ShardMisconfigured
from allocator.schemes.checks import MAX_ID, quoted

MAX_SHARDS = 1000


@dataclass(frozen=True, slots=True)
class Numbering:
    """The ids of one shard in one generation of its fleet: from `floor` on, and below `ceiling` if there is one."""

    offset: int = 1
    step: int = 1
    floor: int = 1
    ceiling: int | None = None

    def checked(self) -> Numbering:
        for name, value, low, high in (
            ("step", self.step, 1, MAX_SHARDS),
            ("offset", self.offset, 1, self.step),
            ("floor", self.floor, 1, MAX_ID),
        ):
            if type(value) is not int or not low <= value <= high:
                raise ShardMisconfigured(f"{name} must be {low} to {high}, got {quoted(value)}; see allocator_shard")
        return self

    def following(self, value: int) -> int:
        """The first id of this shard that is greater than `value`."""
        least = max(value + 1, self.floor)
        return least + (self.offset - least) % self.step

    def judge(self, ticket: int, seen: int) -> bool:
        """Whether a ticket may be used, where `seen` was given before; False when the shard is at its ceiling.

        Raises `ShardMisconfigured` for one that is no id of this shard, and `MaxValueWentBack` for one that is not
        above `seen`. Whatever is not used is burnt.
        """
        if ticket <= seen:
            raise MaxValueWentBack(
                f"ticket {ticket} came after {seen}: the database has forgotten ids, as after a restore; "
                "raise it above every id in use with: allocator shards trust"
            )
        if (ticket - self.offset) % self.step or ticket < self.floor:
            raise ShardMisconfigured(
                f"ticket {ticket} is not of offset {self.offset} and step {self.step} from {self.floor} on: the "
                "numbering of the table was changed behind our back; set it right with: allocator shards trust"
            )
        return self.ceiling is None or ticket < self.ceiling
