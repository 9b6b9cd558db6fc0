"""Trace an id to its process: by a log of claims, and for meteors by the registered nodes."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from allocator.database.store import Database
from allocator.database.verbs import node_and_snowflake_rows
from allocator.errors import DatabaseUnavailable, InvalidId
from allocator.fleet.fleet_backend import Fleet
from allocator.rules.claim_log import Claimed, claim_in
from allocator.schemes.formats.bit_layout import moment
from allocator.schemes.meteor import RANDOMS, MeteorSettings, Node
from allocator.schemes.shared.argument_checks import MAX_ID, check_tag

APART = timedelta(minutes=1)
"""Tolerated difference between the clocks of a process and of its database."""


class Traced(NamedTuple):
    """The trace of an id that may be a meteor.

    node: the node that drew it, if it is a meteor of the format `meteor`.
    silent: the errors of shards that did not answer; they may know the node.
    at: the time in the meteor, which may be ahead of the clock.
    """

    node: Node | None
    silent: list[DatabaseUnavailable]
    meteor: MeteorSettings
    at: datetime


def claims_of(value: object, log: Iterable[str], tag: str | None = None) -> list[Claimed]:
    """Find the claims in a log that contain an id, of one tag or of all. Raises `InvalidId` and `InvalidTag`."""
    number = number_of(value)
    if tag is not None:
        check_tag(tag)
    claims = filter(None, map(claim_in, log))
    return [claim for claim in claims if number in claim.ids and tag in (None, claim.tag)]


def trace(databases: Fleet, value: object, meteor: MeteorSettings | None = None) -> Traced:
    """Find the node that drew an id, if it is a meteor. Raises `DatabaseUnavailable` if no shard answers.

    meteor: the format of the meteors, if not the default; it cannot be seen from an id.
    """
    number = number_of(value)
    form = (meteor or MeteorSettings()).checked()
    fields = form.layout.unpack(number)
    at = moment(form.epoch + fields["second"])
    node: Node | None = None
    silent: list[DatabaseUnavailable] = []
    shards = all_of(databases)
    for database in shards:
        try:
            database.check_sound()
            # Only the first shard of a fleet registers nodes.
            node = node or (registered(database, fields["node"], at) if fields["random"] < RANDOMS else None)
        except DatabaseUnavailable as error:
            silent.append(error)
    if len(silent) == len(shards):
        raise silent[0]
    return Traced(node, silent, form, at)


def all_of(databases: Fleet) -> list[Database]:
    try:
        return databases.serving()
    except DatabaseUnavailable:
        return databases.databases()


def number_of(value: object) -> int:
    text = str(value).strip()
    digits = text.lstrip("0")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > len(str(MAX_ID)) or int(digits) > MAX_ID:
        raise InvalidId(f"the id must be a whole number from 1 to {MAX_ID}, got {ascii(text)[:60]}")
    return int(digits)


def registered(database: Database, number: int, at: datetime) -> Node | None:
    """The node of this number, if it was registered before `at`."""
    node = database.run(node_and_snowflake_rows.fetch, number)
    return node if node is not None and at >= node.started_at - APART else None
