"""The claim is a text of its own for each database: what they have in common stands in each."""

import re

from allocator.database.mysql import MySQL
from allocator.database.postgresql import PostgreSQL
from allocator.database.sqlite import SQLite


def parts(claim: str) -> tuple[set[str], set[str]]:
    """What a claim sets, and its conditions, without comments and what each database says in its own words."""
    text = re.sub(r"  -- .*", "", claim).partition("RETURNING")[0]
    sets, _, conditions = " ".join(text.split()).partition(" WHERE ")
    sets = re.sub(r"LAST_INSERT_ID\((.*)\)", r"\1", sets.partition(" SET ")[2])
    return set(re.split(r", (?=\w+ = )", sets)), set(re.split(r" AND (?!server_run)", conditions))


def test_a_claim_sets_and_asks_the_same_on_every_database():
    found = {kind: parts(kind.claiming.replace(kind.facts["at"], "now")) for kind in (PostgreSQL, MySQL, SQLite)}

    assert found[PostgreSQL][1] - found[MySQL][1] == {"{lasting}"}
    assert found[MySQL] == found[SQLite] == (found[PostgreSQL][0], found[PostgreSQL][1] - {"{lasting}"})
    assert (len(found[MySQL][0]), len(found[MySQL][1])) == (4, 8)
