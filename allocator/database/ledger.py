"""The rows of `allocator_ledger`: each written by the claim that it tells of, asked, and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Select,
    String,
    Update,
    bindparam,
    delete,
    func,
    insert,
    literal_column,
    select,
)

from allocator.database.batch import BatchVerbs
from allocator.database.segments import execute
from allocator.database.tables import ledger, segment
from allocator.errors import SchemaDamaged
from allocator.schemes.epoch import Crossing
from allocator.schemes.lane import Lane
from allocator.schemes.ledger import Author, Entry

INTO = "INSERT INTO allocator_ledger (tag, above, upto, shard_offset, shard_step, host, process, version, claimed_s)"

AT_ONCE = 1000
"""So many entries one statement deletes, and all of the second in which the oldest was written."""


class LedgerVerbs(BatchVerbs):
    def claim_recorded(
        self,
        connection: Connection,
        author: Author,
        patience: float,
        name: str,
        size: int,
        lane: Lane,
        seen: int,
        crossing: Crossing | None = None,
    ) -> int | None:
        """As `claim_segment`, and the entry with it, in one transaction.

        patience: seconds after which a ledger that does not answer has failed.
        """
        claim, parameters = self.claiming(connection, name, size, lane, seen, crossing)
        with self.patient(connection, patience):
            return self.record(connection, claim, name, parameters | written(author, size * lane.step))

    def record(self, connection: Connection, claim: Update, name: str, parameters: dict[str, object]) -> int | None:
        """Carry out a claim together with its entry: one statement, one round trip.

        Where the claim matched a row and no entry was written, it fails, and nothing is claimed.
        """
        return self.end_of(execute(connection, recorded(claim, self.clock), parameters), name)

    def claim_within(self, connection: Connection, patience: float, *claim: Any) -> int | None:
        """As `claim_segment`, given up after so many seconds."""
        with self.patient(connection, patience):
            return self.claim_segment(connection, *claim)

    @contextmanager
    def patient(self, connection: Connection, seconds: float) -> Iterator[None]:
        """Let statements wait for so long, and not as long as any other."""
        yield

    def find_entries(self, connection: Connection, number: int, tag: str | None) -> list[Entry]:
        """The claims that hold a number, of one tag or of all."""
        up = select(func.min(ledger.c.upto)).where(ledger.c.tag == segment.c.tag, ledger.c.upto >= number)
        rows = (
            select(ledger)
            .join(segment, segment.c.tag == ledger.c.tag)
            .where(ledger.c.upto == up.correlate(segment).scalar_subquery(), ledger.c.above < number)
            .order_by(ledger.c.tag)
        )
        if tag is not None:
            rows = rows.where(segment.c.tag == tag)
        entries = [
            Entry(
                row.tag,
                row.above,
                row.upto,
                Lane(row.shard_offset, row.shard_step),
                Author(row.host, row.process, row.version),
                row.claimed_s,
            )
            for row in connection.execute(rows)
        ]
        return [entry for entry in entries if number in entry.ids]

    def sweep_ledger(self, connection: Connection, before: int) -> bool:
        """Delete the oldest of the entries from before a moment, in seconds since 1970; False when none is left."""
        moments = select(ledger.c.claimed_s).order_by(ledger.c.claimed_s)
        oldest = connection.scalar(moments.limit(1))
        if oldest is None or oldest >= before:
            return False
        later = connection.scalar(moments.offset(AT_ONCE).limit(1))
        end = before if later is None else min(before, max(later, oldest + 1))
        connection.execute(delete(ledger).where(ledger.c.claimed_s < end))
        return True


@cache
def recorded(claim: Update, clock: str) -> Select[Any]:
    """A claim that returns what it claimed, as the source of its own entry; a division by zero where that is not kept.

    What is read is the claim's, since a trigger may have changed the entry.
    """
    claimed = claim.cte("claimed")
    upto = claimed.c.max_value
    values = {
        "tag": bindparam("name", type_=String),
        "above": upto - bindparam("own", type_=BigInteger),
        "upto": upto,
        "shard_offset": bindparam("lane_offset", type_=BigInteger),
        "shard_step": bindparam("lane_step", type_=BigInteger),
        "host": bindparam("host", type_=String),
        "process": bindparam("process", type_=BigInteger),
        "version": bindparam("version", type_=String),
        "claimed_s": literal_column(clock),
    }
    entry = insert(ledger).from_select(list(values), select(*values.values())).returning(ledger.c.upto).cte("written")
    kept = select(func.count()).select_from(entry).scalar_subquery()
    return select(upto, literal_column("1").op("/")(kept))


def unwritten(name: str) -> SchemaDamaged:
    """The claim that this ends is undone."""
    return SchemaDamaged(
        f"allocator_ledger kept no entry of a claim of tag {name!r}, as where a trigger drops or redirects what is "
        "inserted; nothing was claimed; see: allocator doctor"
    )


def written(author: Author, own: int) -> dict[str, object]:
    """The parameters that an entry has and its claim has not."""
    return {"own": own, "host": author.host[:255], "process": author.process, "version": author.version[:32]}
