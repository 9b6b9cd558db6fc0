"""The tables, as the MetaData that Alembic compares with.

`allocator_segment` holds a row per tag. Ids up to `max_value` are claimed, by whichever process; a claim raises
it and owns what lies between. No row is ever deleted while ids of its tag are in use.

`shard_offset` and `shard_step` say which of the ids in between: those of one remainder where several databases
serve a tag, and all of them with offset 1 and step 1. While a fleet grows the step is 0, and nothing is claimed.

`server_run` says which run of which server wrote the row last. Another one may have forgotten claims, and skips a gap:
`failover_gap` is its size in ids, -1 to refuse instead, -2 for one in proportion to what the tag gave, which is
`max_value - skipped`. `claimed_at` is the time of the last claim in milliseconds since 1970. `allocator_failover` holds
one row, which says the same of all the rest: of tags that may have been made and forgotten, nodes and workers.

`allocator_ticket` holds a row per type, whose auto-increment value is its newest ticket, and
`allocator_ticket_counter` the same for the statement that only adds. `allocator_shard` holds one row: who this
database is among the shards of its fleet.

`allocator_node` gets a row for every start of a meteor generator; its number is never used again, so no row is ever
deleted. `allocator_worker` holds a row per snowflake worker: until when, and by whom, it may be used.

`allocator_token` holds a row per token of the service, of whose secret only the digest is known; one that is revoked
stays.

`allocator_number` holds a row per name, scope and period of `Numbers`: the newest number that was given.
It is written in the transactions of applications, and locked until they end. `allocator_number_void` holds a row per
number that was given and is not used. `allocator_lease` holds a row per worker number of a space that was ever leased:
who holds it, until when by the database's clock, and the last millisecond in which the holder may have used it. No row
is ever deleted. `allocator_takeover` holds a row per column that was taken over: which ids are its own counter's, and
which are a tag's. `allocator_binding` holds a row per column that a tag is bound to, for the doctor, and
`allocator_number_binding` one per column that numbers are bound to. No id depends on these six.
"""

from __future__ import annotations

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
    Text,
)
from sqlalchemy.dialects import mysql

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011", "0012", "0013")
"""The schema's revisions, oldest first; the last is the one that this version of the package needs."""

SERVING = ("0008", "0009", "0010", "0011", "0012", "0013")
"""Those that ids can be drawn from. Later ones added tables that no id depends on."""

PREFIX = "allocator_"
"""The prefix of our tables; no other table should have it."""

VERSION_TABLE = "allocator_schema_version"

INNODB: dict[str, Any] = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}

metadata = MetaData()

tag_type = (
    String(64)
    .with_variant(String(64, collation="C"), "postgresql")
    .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
)
"""Tags are compared byte by byte: a server's default collation may equate `Order` and `order`."""

run_type = String(255).with_variant(mysql.VARCHAR(255, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
"""On MySQL with a fixed character set, so that it compares with text of any."""

period_type = (
    String(10)
    .with_variant(String(10, collation="C"), "postgresql")
    .with_variant(mysql.VARCHAR(10, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
)

place_type = String(255).with_variant(
    mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
"""The name of a host's column or sequence, and the format of numbers, which people read too."""

number_type = BigInteger().with_variant(Integer, "sqlite")
"""The type of an auto-increment column. SQLite numbers only INTEGER, which has 64 bits there."""

segment = Table(
    "allocator_segment",
    metadata,
    Column("tag", tag_type, primary_key=True),
    Column("max_value", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("max_step", BigInteger, nullable=False),
    Column("id_limit", BigInteger, nullable=False),
    Column("shard_offset", BigInteger, nullable=False, server_default="1"),
    Column("shard_step", BigInteger, nullable=False, server_default="1"),
    Column("server_run", run_type, nullable=False, server_default=""),
    Column("failover_gap", BigInteger, nullable=False, server_default="-2"),
    Column("skipped", BigInteger, nullable=False, server_default="0"),
    Column("claimed_at", BigInteger, nullable=False, server_default="0"),
    # Past 2**63 SQLite turns an integer into a REAL, which no claim can raise; the bounds refuse it.
    CheckConstraint(
        "max_value >= 0 AND max_value <= id_limit AND id_limit <= 9223372036854775807",
        name="allocator_segment_within_limit",
    ),
    CheckConstraint("step >= 1 AND step <= max_step", name="allocator_segment_step"),
    **INNODB,
)

node = Table(
    "allocator_node",
    metadata,
    # Without AUTOINCREMENT SQLite reuses the number of a deleted row.
    Column("id", number_type, Identity(always=True), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", DateTime, nullable=False),
    sqlite_autoincrement=True,
    **INNODB,
)

worker = Table(
    "allocator_worker",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("layout", String(40), nullable=False),
    Column("epoch_ms", BigInteger, nullable=False),
    Column("holder", String(32), nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    **INNODB,
)

ticket = Table(
    "allocator_ticket",
    metadata,
    # Not "always": the draw for an existing type writes the new number over the old one.
    Column("id", number_type, Identity(always=False), primary_key=True),
    Column("type", tag_type, nullable=False, unique=True),
    sqlite_autoincrement=True,
    **INNODB,
)

counter = Table(
    "allocator_ticket_counter",
    metadata,
    Column("type", tag_type, primary_key=True),
    Column("id", BigInteger, nullable=False),
    **INNODB,
)

shard = Table(
    "allocator_shard",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("fleet", tag_type, nullable=False),
    Column("shard_key", String(32), nullable=False),
    Column("server", String(255), nullable=False),
    Column("statement", String(16), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("shard_offset", BigInteger, nullable=False),
    Column("shard_step", BigInteger, nullable=False),
    Column("floor", BigInteger, nullable=False),
    Column("ceiling", BigInteger, nullable=True),
    Column("revision", BigInteger, nullable=False),
    Column("members", Text, nullable=False),
    Column("target", Text, nullable=True),
    CheckConstraint("id = 1", name="allocator_shard_one_row"),
    **INNODB,
)

failover = Table(
    "allocator_failover",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    Column("first_value", BigInteger, nullable=False),
    Column("leases_from_ms", BigInteger, nullable=False),
    Column("leases_ahead_ms", BigInteger, nullable=False),
    Column("server_run", run_type, nullable=False, server_default=""),
    CheckConstraint("id = 1", name="allocator_epoch_one_row"),
    **INNODB,
)

token = Table(
    "allocator_token",
    metadata,
    Column("id", number_type, Identity(always=True), primary_key=True),
    Column("name", tag_type, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("verbs", String(64), nullable=False),
    Column("tags", String(1000), nullable=False),
    Column("ids_rate", BigInteger, nullable=True),
    Column("requests_rate", BigInteger, nullable=True),
    Column("created_at", DateTime, nullable=False),
    Column("expires_at", DateTime, nullable=True),
    Column("revoked_at", DateTime, nullable=True),
    sqlite_autoincrement=True,
    **INNODB,
)

number = Table(
    "allocator_number",
    metadata,
    Column("name", tag_type, primary_key=True),
    Column("scope", tag_type, primary_key=True),
    Column("period", period_type, primary_key=True),
    Column("n", BigInteger, nullable=False),
    # As of `allocator_segment`: SQLite makes a REAL of what passes 2**63.
    CheckConstraint("n >= 1 AND n <= 9223372036854775807", name="allocator_number_within_limit"),
    **INNODB,
)

number_void = Table(
    "allocator_number_void",
    metadata,
    Column("name", tag_type, primary_key=True),
    Column("scope", tag_type, primary_key=True),
    Column("period", period_type, primary_key=True),
    Column("n", BigInteger, primary_key=True, autoincrement=False),
    Column("written", String(255), nullable=False),
    Column("reason", String(255), nullable=False),
    Column("voided_at", DateTime, nullable=False),
    **INNODB,
)

lease = Table(
    "allocator_lease",
    metadata,
    Column("space", tag_type, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("bits", Integer, nullable=False),
    Column("length_ms", BigInteger, nullable=False),
    Column("holder", String(32), nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("until_ms", BigInteger, nullable=False),
    Column("used_until_ms", BigInteger, nullable=False),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    **INNODB,
)

takeover = Table(
    "allocator_takeover",
    metadata,
    Column("place", place_type, primary_key=True),
    Column("tag", tag_type, nullable=False),
    Column("state", String(16), nullable=False),
    Column("native_first", BigInteger, nullable=False),
    Column("native_last", BigInteger, nullable=False),
    Column("tag_first", BigInteger, nullable=False),
    Column("tag_last", BigInteger, nullable=False),
    Column("counter", place_type, nullable=False),
    Column("given", BigInteger, nullable=False),
    Column("given_at", BigInteger, nullable=False),
    Column("started_given", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    **INNODB,
)

binding = Table(
    "allocator_binding",
    metadata,
    Column("place", place_type, primary_key=True),
    Column("tag", tag_type, nullable=False),
    Column("greatest", BigInteger, nullable=False),
    Column("tag_first", BigInteger, nullable=False),
    Column("issued", BigInteger, nullable=False),
    Column("bound_at", BigInteger, nullable=False),
    **INNODB,
)

number_binding = Table(
    "allocator_number_binding",
    metadata,
    Column("place", place_type, primary_key=True),
    Column("name", tag_type, nullable=False),
    Column("format", place_type, nullable=False),
    Column("reset", String(8), nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("timezone", String(64), nullable=False),
    Column("scope_column", place_type, nullable=False),
    Column("period_column", place_type, nullable=False),
    Column("order_column", place_type, nullable=False),
    **INNODB,
)

BESIDE = (number, number_void, lease, takeover, binding, number_binding)
"""The tables that no id depends on: ids are drawn without them too."""

FOR_IDS = [table for table in metadata.sorted_tables if table not in BESIDE]
"""Without these no id is drawn."""
