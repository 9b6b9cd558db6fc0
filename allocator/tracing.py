"""Which process got an id, and when: out of the ledger, and for meteors out of the registered nodes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, NamedTuple

from allocator.backend import Databases
from allocator.errors import DatabaseUnavailable, InvalidId
from allocator.schemes.layout import moment
from allocator.schemes.ledger import Entry
from allocator.schemes.limits import MAX_ID, check_tag
from allocator.schemes.meteor import RANDOMS, MeteorSettings
from allocator.schemes.registry import Node

APART = timedelta(minutes=1)
"""By how much the clocks of a process and of its database may differ."""


class Traced(NamedTuple):
    """`entries`: the claims that hold the number. `node`: who drew it, if it is a meteor of the format `meteor`.

    `at`: the time in it then, which goes up with the ids drawn and may be ahead of the clock.
    `silent`: why shards that did not answer said nothing; another one may know more.
    """

    entries: list[Entry]
    node: Node | None
    silent: list[DatabaseUnavailable]
    meteor: MeteorSettings
    at: datetime


def trace(databases: Databases, value: object, tag: str | None = None, meteor: MeteorSettings | None = None) -> Traced:
    """Ask the ledger of every shard. With a `tag`, an id of this tag alone is meant.

    meteor: the format of the meteors, where it is not the usual one; a number does not say of which it is.

    Raises `DatabaseUnavailable` where none answers.
    """
    number = number_of(value)
    if tag is not None:
        check_tag(tag)
    form = (meteor or MeteorSettings()).checked()
    found = Traced([], None, [], form, moment(form.epoch + form.layout.unpack(number)["second"]))
    shards = all_of(databases)
    for database in shards:
        try:
            found = ask(database, number, tag, found)
        except DatabaseUnavailable as error:
            found.silent.append(error)
    if len(found.silent) == len(shards):
        raise found.silent[0]
    return found


def all_of(databases: Databases) -> list[Any]:
    try:
        return databases.serving()
    except DatabaseUnavailable:
        return databases.fleet.databases()


def ask(database: Any, number: int, tag: str | None, found: Traced) -> Traced:
    """Nodes are registered by the first of a fleet alone; of the others, none is found."""
    database.check_schema()
    entries = database.run(database.dialect.find_entries, number, tag)
    node = found.node or (None if tag else registered(database, number, found))
    return found._replace(entries=found.entries + entries, node=node)


def number_of(value: object) -> int:
    text = str(value).strip()
    digits = text.lstrip("0")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > len(str(MAX_ID)) or int(digits) > MAX_ID:
        raise InvalidId(f"a claimed id is a whole number from 1 to {MAX_ID}, got {ascii(text)[:60]}")
    return int(digits)


def registered(database: Any, number: int, found: Traced) -> Node | None:
    """The node that a number names as a meteor, if that can be one and was registered by the time that it tells."""
    fields = found.meteor.layout.unpack(number)
    if fields["random"] >= RANDOMS:
        return None
    node: Node | None = database.run(database.dialect.find_node, fields["node"])
    return node if node is not None and found.at >= node.started_at - APART else None
