"""The claims of the databases stand as whole texts, and say the same."""

import re

from allocator.database.mysql import MySQL
from allocator.database.postgresql import PostgreSQL
from allocator.database.sqlite import SQLite

GREATER = re.compile(r"^max_value = (?:LAST_INSERT_ID\()?max_value \+ :skip \+ :span\)?$")


def parts(claim: str) -> tuple[set[str], set[str]]:
    """What a claim writes, but for the clock, and its conditions, but for that of the commit."""
    text = re.sub(r" *--.*", "", claim)
    sets, _, conditions = text.partition("WHERE")
    written = {one.strip() for one in sets.partition("SET")[2].split(",\n") if "claimed_at" not in one}
    named = {" ".join(one.split()) for one in re.split(r"\n *AND ", conditions.partition("RETURNING")[0])}
    return {"the end" if GREATER.match(one) else one for one in written}, named - {"{lasting}"}


def test_each_database_writes_the_same_under_the_same_conditions():
    """PostgreSQL's commit may not wait for the disk; the others' does."""
    claims = [parts(dialect.claiming) for dialect in (PostgreSQL, MySQL, SQLite)]

    assert claims[0] == claims[1] == claims[2]
    assert len(claims[0][1]) == 7
