"""A million numbers without gaps on each database: 8 processes, 50 scopes, random ROLLBACKs and SIGKILLs of clients."""

from __future__ import annotations

import os

from support.processes import number_writers
from tqdm import tqdm

NUMBERS = int(os.environ.get("ALLOCATOR_TEST_NUMBERS", "1000000"))
A_LIFE = 1000


def test_a_million_numbers_of_clients_that_are_killed(kind, url, report):
    lives = number_writers.run(url, processes=8, scopes=50, lives=NUMBERS // A_LIFE, transactions=A_LIFE)
    killed = sum(tqdm(lives, desc=f"{kind}: lives"))
    found = number_writers.check(url)
    report(f"{kind}: {found.rows} numbers of 50 scopes, {killed} clients killed, {found.wrong} scopes wrong")

    assert found.wrong == 0
    assert found.rows >= NUMBERS
