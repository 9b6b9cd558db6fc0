"""The check of a ticket that REPLACE returns."""

import pytest

from allocator.errors import MaxValueWentBack, ShardMisconfigured
from allocator.schemes.shared.residues import ALL, Residue
from allocator.schemes.ticket import check_ticket


def test_what_came_is_checked():
    slot = Residue(2, 3)

    assert check_ticket(101, slot, 0) == 101
    assert check_ticket(197, slot, 101) == 197
    assert check_ticket(1, ALL, 0) == 1
    for wrong in (102, 99):
        with pytest.raises(ShardMisconfigured, match=f"ticket {wrong} is not of this database, which is slot 2 of 3"):
            check_ticket(wrong, slot, 0)
    for seen in (101, 104):
        with pytest.raises(MaxValueWentBack, match=f"ticket 101 came after {seen}"):
            check_ticket(101, slot, seen)
