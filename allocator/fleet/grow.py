"""Grow a fleet while it gives ids: the steps of `rules.fleet_growth_protocol`, applied to one shard after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from secrets import token_hex

from allocator.database.store import Database
from allocator.database.verbs import shard_row
from allocator.errors import ShardMisconfigured
from allocator.fleet.bootstrap import Opening
from allocator.fleet.discovery import Discovery, Found, lead_of, look
from allocator.fleet.tag_administration import tags_of
from allocator.rules import fleet_growth_protocol
from allocator.rules.fleet_consistency import BEGUN, JOINING, Member, Shard, Target, listed, newer_place, places
from allocator.rules.fleet_growth_protocol import HEADROOM, LEAD, Again, TooLow
from allocator.schemes.shared.argument_checks import MAX_ID, check_whole
from allocator.schemes.ticket import ShardNumbering

ATTEMPTS = 100
"""Retries after another command changed a row. One command makes a few changes, so more means that rows disagree."""


class Growth(Discovery):
    """Grows the fleet that `databases` belong to."""

    def begin(self) -> None:
        """Make a single database shard 1 of 1."""
        (database, *more) = {one.address.public_url: one for one in self._given}.values()
        seen = look(database)
        if seen.error:
            raise seen.error
        if not more and seen.row is None:
            Opening([database], None).open()

    def add(self, newcomer: Database) -> Target:
        """Plan to grow by an empty database, which gives no ids before `grow`. May be repeated."""
        found = self.reached(newcomers=False)
        self._lost(found)
        lead = lead_of(found)
        assert lead.row is not None
        lead.database.run(shard_row.check_writer)
        self._opened.append(newcomer)
        key = self._join(newcomer, lead.row, found)
        planned = lead.change(fleet_growth_protocol.planned, Member(key, 0, newcomer.address.public_url), token_hex(16))
        assert planned.target is not None
        return planned.target

    def _join(self, newcomer: Database, lead: Shard, found: dict[str, Found]) -> str:
        seen = look(newcomer, several=True)
        if seen.error:
            raise seen.error
        if seen.row is not None and not seen.row.is_alone:
            if seen.row.joining and seen.row.fleet == lead.fleet:
                return seen.row.key
            raise ShardMisconfigured(
                f"{seen.where} is shard {seen.row.numbering.offset} of the fleet {seen.row.fleet!r} already"
            )
        newcomer.run(shard_row.check_owner)
        if newcomer.run(shard_row.has_ids):
            raise ShardMisconfigured(f"{seen.where} has given ids of its own; a shard that is added must be empty")
        same = [one.where for one in found.values() if seen.place and one.place == seen.place]
        if same:
            raise ShardMisconfigured(f"{seen.where} is {same[0]} under another URL, or a copy of its server")
        fresh = Shard(lead.fleet, token_hex(16), True, JOINING, ShardNumbering(0, 0), BEGUN, ())
        newcomer.run(shard_row.add, fresh, seen.where)
        return fresh.key

    def leave_out(self, lost: Iterable[Database]) -> None:
        """Grow, or take back, without shards that are lost permanently."""
        self._without = {database.address.public_url: database for database in lost}
        for database in self._without.values():
            database.may_create = False  # its file may be lost too

    def _lost(self, found: dict[str, Found]) -> dict[str, Member]:
        """The lost shards by key. Raises if one is no shard, is the lead, or still answers."""
        rows = [one.row for one in found.values() if one.row]
        named = {member.url: member for row in rows for member in listed(row)}
        lost = {}
        for url, database in self._without.items():
            if url not in named:
                raise ShardMisconfigured(f"{database.address.shown} is no shard; there are {', '.join(sorted(named))}")
            member = lost[named[url].key] = named[url]
            if any(one.key == member.key and one.offset == LEAD for row in rows for one in row.members):
                raise ShardMisconfigured(
                    f"cannot remove {database.address.shown}: it is shard {LEAD}, which alone numbers nodes, leases "
                    "workers and keeps tokens; restore its newest backup, then run: allocator shards trust URL"
                )
            seen = look(database).row
            if seen and seen.key == member.key and not any(newer_place(seen, row) for row in rows):
                raise ShardMisconfigured(f"{database.address.shown} answers, so it is not lost; leave --without out")
        return lost

    def grow(self, headroom: int = HEADROOM, above: int | None = None) -> Shard:
        """Grow to the planned fleet. May run again after any interruption.

        headroom: how many tickets a shard may give until all have turned. Returns the lead's row.
        above: a number above which the shards left out gave no ticket and no id of any tag.
        """
        if above is not None:
            check_whole("above", above, 0, MAX_ID)
        for _ in range(ATTEMPTS):
            with suppress(Again):
                return self._grow(headroom, above)
        raise ShardMisconfigured(
            "shards disagree about the growth in progress (one may have been restored); undo it with: "
            "allocator shards grow --take-back"
        )

    def _grow(self, headroom: int, above: int | None) -> Shard:
        found = self.reached()
        lost = self._lost(found)
        lead = lead_of(found)
        assert lead.row is not None
        followed = self._bring_up(found, lead.row)
        if followed and lead.row.target is None:
            return lead.row
        if followed:
            raise Again
        if lead.row.target is None:
            self.take_back()  # remove what a growth that was taken back may have left
            raise ShardMisconfigured("no growth is planned; add a database with: allocator shards add URL")
        self._check_above(lead.row, lost, above)
        coming = [member for member in lead.row.target.members if member.key not in lost]
        self._check_coming(coming, found)
        old = [found[member.key] for member in lead.row.members if member.key not in lost]
        for one in old:
            one.note_failover()  # before the floor is decided: forgotten tickets would be above it
            one.database.cross_all()  # else the new shards would begin where these were before a failover
        target = self._turn(lead, old, lead.row.target, headroom, lost, above or 0)
        if places(target.members) != places(lead.row.target.members):
            raise Again  # `shards add` was run since the rows were read: prepare that shard too
        first_value = max(one.database.current().shard.move.first_value for one in old)
        tags = tags_of((one.database for one in old), first_value)  # they are fenced: no process claims more
        for member in coming:
            found[member.key].database.begin_above(first_value)
            if member.offset != LEAD:
                found[member.key].change(fleet_growth_protocol.entered, target, tags=tags)
        # The lead last: until then its row holds the growth, and `grow` can run again.
        return lead.change(fleet_growth_protocol.entered, target, tags=tags)

    def _check_coming(self, coming: Sequence[Member], found: dict[str, Found]) -> None:
        missing = [member.url for member in coming if member.key not in found]
        if missing:
            raise ShardMisconfigured(
                f"{missing[0]} lacks the row of allocator_shard that it got when it was added: the database was "
                "replaced or emptied. Restore the row, or undo the growth and begin again: "
                "allocator shards grow --take-back"
            )
        for member in coming:
            found[member.key].database.run(shard_row.check_owner)

    def _bring_up(self, found: dict[str, Found], lead: Shard) -> bool:
        """Update shards that were away while the fleet turned; False if there are none."""
        behind = [one for one in found.values() if one.row and JOINING < one.row.generation < lead.generation]
        if behind and not (lead.target and lead.target.turning):
            serving = [one.database for one in found.values() if one.row and not one.row.joining]
            first_value = max(database.current().shard.move.first_value for database in serving)
            tags = tags_of(serving, first_value)
            for one in behind:
                one.database.begin_above(first_value)
                one.change(fleet_growth_protocol.followed, lead, tags=tags)
            return True
        return False

    def _check_above(self, lead: Shard, lost: dict[str, Member], above: int | None) -> None:
        if not lost or (lead.target and lead.target.turning):
            return
        old = {member.key for member in lead.members}
        for key, member in lost.items():
            if key not in old:
                raise ShardMisconfigured(
                    f"{member.url} was only being added and gave no ids; start again: allocator shards grow --take-back"
                )
        if above is None:
            raise ShardMisconfigured(
                f"{', '.join(one.url for one in lost.values())} may have given ids that the other shards do not know "
                "of: make sure that it never starts again, and pass --above N, a number above every ticket and id of it"
            )

    def _turn(
        self, lead: Found, old: Sequence[Found], target: Target, headroom: int, lost: Collection[str], above: int
    ) -> Target:
        """Decide where the old generation ends, and fence every shard there. This cannot be undone."""
        room = headroom * len(old) + 1
        if lost and not target.turning:
            floor = max(above, *(one.greatest() for one in old)) + room
            target = target_of(lead.change(fleet_growth_protocol.left_out, target.key, lost, floor))
        if target.floor is None:
            floor = max(one.greatest() for one in old) + room
            target = target_of(lead.change(fleet_growth_protocol.decided, target.key, floor))
        while not target.turning:
            try:
                for one in old:
                    one.note_failover()
                    one.fence(target)
                self._level(old, target, above)
            except TooLow as error:
                room *= 2  # they draw faster than expected
                target = target_of(lead.change(fleet_growth_protocol.decided, target.key, error.greatest + room))
            else:
                # Only now, when no old shard can pass the floor: from here on new shards may begin there.
                target = target_of(lead.change(fleet_growth_protocol.turning, target))
        return target

    def _level(self, old: Sequence[Found], target: Target, above: int) -> None:
        """Raise the tags of each old shard to the greatest claim of all: any shard may be lost after the turn."""
        first_value = max(above, *(one.database.current().shard.move.first_value for one in old))
        tags = [
            replace(tag, max_value=max(tag.max_value, min(above, tag.limit)))
            for tag in tags_of((one.database for one in old), first_value)
        ]
        for one in old:
            one.database.begin_above(first_value)
            one.change(fleet_growth_protocol.levelled, target, tags=tags)

    def take_back(self) -> bool:
        """Undo a growth that has not turned yet; False if there is none.

        An added database stays marked as joining: it gives no ids, and can be added again.
        """
        found = self.reached(newcomers=False)
        self._lost(found)
        lead = lead_of(found)
        lead.database.run(shard_row.check_writer)
        # Read the lead last: a fence on another shard whose growth the lead has already dropped is stale.
        row = lead.database.run(shard_row.fetch)
        ours = row.target if row else None
        if ours is not None:
            row = lead.change(fleet_growth_protocol.taken_back, ours.key)
        for one in found.values():
            # A shard behind the lead is fenced by a growth that has ended: `grow` updates it.
            if one.row and one.row.target and one is not lead and row and one.row.generation == row.generation:
                one.change(fleet_growth_protocol.taken_back, one.row.target.key)
        return ours is not None or any(one.row and one.row.target for one in found.values())

    def trust(self, database: Database, headroom: int = HEADROOM, above: int | None = None) -> Shard:
        """Let a shard continue after a failover or restore, above all ids of any shard and a headroom.

        above: the greatest id given; needed where this shard is the only one, or others do not answer.
        """
        if above is not None:
            check_whole("above", above, 0, MAX_ID)
            self.begin()
        found = [one for one in self.shards() if one.row and not one.row.joining]
        here = next((one for one in found if one.database.address.public_url == database.address.public_url), None)
        if here is None or here.row is None:
            raise ShardMisconfigured(f"{database.address.shown} is no shard of this fleet that can be reached")
        here.database.run(shard_row.check_owner)
        here.database.current()  # else the next draw would note it, and stop the tickets again
        known = {member.key for one in found if one.row for member in one.row.members}
        missing = len(known - {one.row.key for one in found if one.row})
        if above is None and (missing or len(found) == 1):
            raise ShardMisconfigured(
                f"{len(found)} of {len(known)} shards answer, too few to know the last id of {here.where}; "
                "pass --above N, a number above every id and ticket that was given"
            )
        floor = max(above or 0, max(map(reached, found)) + headroom * len(found)) + 1
        key, url = here.row.key, here.url
        epoch = 1 + max(m.epoch for one in found if one.row for m in one.row.members if m.key == key)
        row: Shard = here.database.run(
            shard_row.change,
            lambda row, _: fleet_growth_protocol.moved(fleet_growth_protocol.trusted(row, floor), key, url, epoch),
            (),
            True,
        )
        for one in found:
            if one is not here:
                one.change(fleet_growth_protocol.moved, key, url, epoch)
        return row


def reached(one: Found) -> int:
    """The greatest ticket of a shard, or the floor above which it may have drawn since: it may have forgotten both."""
    assert one.row is not None
    target = one.row.target.floor if one.row.target else None
    return max(one.greatest(), one.row.numbering.floor, target or 0)


def target_of(row: Shard) -> Target:
    if row.target is None:
        raise Again
    return row.target
