"""The tables, as the MetaData that Alembic compares with.

`allocator_segment` holds a row per tag. Ids up to `max_value` are claimed, by whichever process; a claim raises
it and owns what lies between. No row is ever deleted while ids of its tag are in use.

`shard_offset` and `shard_step` say which of the ids in between: those of one remainder where several databases
serve a tag, and all of them with offset 1 and step 1. While a tag is being deleted the step is 0: nothing is claimed.

`move` is the key of the last move to another server whose gap the row has; see `allocator_shard`. That server may have
forgotten claims, and a claim skips a gap first: `failover_gap` is its least size in ids, -1 to refuse instead, -2 for
one in proportion to what the tag gave: `max_value - skipped` is S numbers for each id, in a fleet of S. `claimed_at` is
the time of the last claim in milliseconds since 1970.

`allocator_ticket` holds a row per type, whose auto-increment value is its newest ticket. It is used on MySQL and
MariaDB alone; elsewhere `allocator_segment` has a row per type, whose name no tag of a user's can have.
`allocator_shard` holds one row: the slot of this database in a fleet, how it draws tickets, and what a failover
changes: the server run that wrote the row last, the random key of the last move, the first value of new tags, and the
time of the move. `made` is raised for each new or changed tag, so that a move in between is noticed. `taken` lists the
slots of the fleet that were ever given, `taken_under` is the move under which that was written, and `taken_for` says
for which database: see `allocator.schemes.slots`.

`allocator_node` gets a row for every start of a meteor generator; its number is never used again, so no row is ever
deleted. Of slot k of S the number is (id - 1) * S + k, by the slot at that time, which the row keeps.

`allocator_token` holds a row per token of the service, of whose secret only the digest is known; one that is revoked
stays.

`allocator_number` holds a row per name, scope and period of `Numbers`: the newest number that was given,
and as `rule` what else decides about the next one, which must be the same for all who draw: see `NumberRule.kept`.
It is written in the transactions of applications, and locked until they end. `allocator_number_void` holds a row per
number that was given and is not used. No id depends on these two.

`allocator_lease` holds a row per worker number of a space that was ever leased: who holds it, until when by the
database's clock, and the last millisecond in which the holder may have used it. Snowflakes have a space of their own,
whose `format` is their layout and epoch. No row is ever deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Integer,
    MetaData,
    SmallInteger,
    String,
    Table,
)

REVISIONS = ("0001",)
"""The schema's revisions, oldest first; the last is the one that this version of the package needs.

Each only adds to the one before, so ids can be drawn from all.
"""

PREFIX = "allocator_"
"""Migrations of the application recognize our tables by it, and leave them alone."""

VERSION_TABLE = "allocator_schema_version"
"""Not Alembic's default name, which the host application may use for tables of its own."""

metadata = MetaData()


def bytewise(length: int) -> String:
    """Text that MySQL and MariaDB compare byte by byte: their default collation may equate `Order` and `order`."""
    return String(length).with_variant(String(length, collation="utf8mb4_bin"), "mysql", "mariadb")


def bytewise_everywhere(length: int) -> String:
    return bytewise(length).with_variant(String(length, collation="C"), "postgresql")


tag_type, period_type = bytewise_everywhere(64), bytewise_everywhere(10)
reserved_type = bytewise_everywhere(72)
"""A tag, or the type of a ticket after `.ticket:`."""
run_type = bytewise(255)

number_type = BigInteger().with_variant(Integer, "sqlite")
"""The type of an auto-increment column. SQLite numbers only INTEGER, which has 64 bits there."""


class Stored(Table):
    """A table of ours. Its options are made when they are asked for: they import SQLAlchemy's MySQL and SQLite."""

    inherit_cache = True

    @cached_property
    def dialect_options(self) -> Any:
        # Past SQLAlchemy's own memory, where another thread would find options that are not filled in yet.
        options = Table.dialect_options.fget(self)
        options["mysql"]["engine"] = options["mariadb"]["engine"] = "InnoDB"
        if any(column.identity for column in self.columns):
            # Without AUTOINCREMENT SQLite reuses the number of a deleted row.
            options["sqlite"]["autoincrement"] = True
        return options


def counts(*names: str, default: str | None = None) -> Iterator[Column[int]]:
    return (Column(name, BigInteger, nullable=False, server_default=default) for name in names)


segment = Stored(
    "allocator_segment",
    metadata,
    Column("tag", reserved_type, primary_key=True),
    *counts("max_value", "step", "max_step", "id_limit"),
    *counts("shard_offset", "shard_step", default="1"),
    *counts("move", default="0"),
    *counts("failover_gap", default="-2"),
    *counts("skipped", "claimed_at", default="0"),
    # Past 2**63 SQLite turns an integer into a REAL, which no claim can raise; the bounds refuse it.
    CheckConstraint(
        "max_value >= 0 AND max_value <= id_limit AND id_limit <= 9223372036854775807",
        name="allocator_segment_within_limit",
    ),
    CheckConstraint("step >= 1 AND step <= max_step", name="allocator_segment_step"),
)

node = Stored(
    "allocator_node",
    metadata,
    Column("id", number_type, Identity(always=True), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", DateTime, nullable=False),
    *counts("slot", "slots", default="1"),
)

ticket = Stored(
    "allocator_ticket",
    metadata,
    # Not "always": the draw for an existing type writes the new number over the old one.
    Column("id", number_type, Identity(always=False), primary_key=True),
    Column("type", tag_type, nullable=False, unique=True),
)

shard = Stored(
    "allocator_shard",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("fleet", String(8), nullable=False),
    Column("tickets", String(16), nullable=False),
    *counts("slot", "slots"),
    Column("taken", String(255), nullable=False),
    *counts("taken_under", "taken_for"),
    Column("server_run", run_type, nullable=False),
    *counts("move", "new_tags_above", "moved_at", "made"),
    CheckConstraint("id = 1", name="allocator_shard_one_row"),
)

token = Stored(
    "allocator_token",
    metadata,
    Column("id", number_type, Identity(always=True), primary_key=True),
    Column("name", tag_type, nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("verbs", String(64), nullable=False),
    Column("tags", String(1000), nullable=False),
    Column("created_at", DateTime, nullable=False),
    Column("expires_at", DateTime, nullable=True),
    Column("revoked_at", DateTime, nullable=True),
)

number = Stored(
    "allocator_number",
    metadata,
    Column("name", tag_type, primary_key=True),
    Column("scope", tag_type, primary_key=True),
    Column("period", period_type, primary_key=True),
    Column("n", BigInteger, nullable=False),
    Column("rule", bytewise(255), nullable=False, server_default=""),
    # As of `allocator_segment`: SQLite makes a REAL of what passes 2**63.
    CheckConstraint("n >= 1 AND n <= 9223372036854775807", name="allocator_number_within_limit"),
)

number_void = Stored(
    "allocator_number_void",
    metadata,
    Column("name", tag_type, primary_key=True),
    Column("scope", tag_type, primary_key=True),
    Column("period", period_type, primary_key=True),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("written", String(255), nullable=False),
    Column("reason", String(255), nullable=False),
    Column("voided_at", DateTime, nullable=False),
)

lease = Stored(
    "allocator_lease",
    metadata,
    Column("space", tag_type, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("bits", Integer, nullable=False),
    Column("length_ms", BigInteger, nullable=False),
    Column("holder", String(32), nullable=False),
    *counts("renewals", "until_ms", "used_until_ms"),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("format", String(64), nullable=False),
)

BESIDE = (number, number_void)
"""The tables of numbers without gaps: ids are drawn without them too."""

CLAIMED = tuple(one.name for one in (segment, ticket, node, lease, shard))
"""The tables that numbers are drawn from. A trigger there can change what was drawn, so there must be none."""

FOR_IDS = [one for one in metadata.sorted_tables if one not in BESIDE]
