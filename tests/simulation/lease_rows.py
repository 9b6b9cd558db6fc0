"""What the statements of worker numbers do to a row, which `contract/test_worker_rows.py` ties to the SQL."""

from __future__ import annotations

from dataclasses import replace

from allocator.schemes import worker_number_lease
from allocator.schemes.worker_number_lease import NumberClaim, NumberLease, NumberRow


def leased(row: NumberRow | int, claim: NumberClaim, at_ms: int) -> NumberRow:
    """The row after it was taken."""
    number, used = (row, 0) if isinstance(row, int) else (row.number, row.used_until_ms)
    until, used = at_ms + claim.length_ms, max(used, claim.wall_ms + claim.length_ms)
    return NumberRow(
        number, claim.bits, claim.length_ms, claim.holder, 0, until, used, claim.host, claim.process, claim.format
    )


def renewed(row: NumberRow, lease: NumberLease, wall_ms: int, at_ms: int) -> NumberRow | None:
    """The row after a renewal; None where the lease is lost: taken, or the wall clock is too far ahead.

    Whether it has ended is for the holder to say, by `Tenure`: a failover may have forgotten the renewals before.
    """
    if (row.holder, row.length_ms) != (lease.holder, lease.length_ms):
        return None
    if not worker_number_lease.is_near(wall_ms, row.length_ms, at_ms):
        return None
    used = max(row.used_until_ms, wall_ms + row.length_ms)
    return replace(row, renewals=row.renewals + 1, until_ms=at_ms + row.length_ms, used_until_ms=used)


def released(row: NumberRow, lease: NumberLease, used_ms: int, at_ms: int) -> NumberRow | None:
    """The row after its holder gave it back; None where it is another's."""
    used = min(used_ms, at_ms + 3 * lease.length_ms)
    return replace(row, holder="", used_until_ms=used) if row.holder == lease.holder else None
