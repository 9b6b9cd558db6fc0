"""The tables, as the MetaData that Alembic compares with.

`allocator_segment` holds a row per tag. Ids up to `max_value` are claimed, by whichever process; a claim raises
it and owns what lies between. No row is ever deleted while ids of its tag are in use.

`allocator_node` gets a row for every start of a meteor generator; its number is never used again, so no row is ever
deleted. `allocator_worker` holds a row per snowflake worker: until when, and by whom, it may be used.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Integer,
    MetaData,
    String,
    Table,
)
from sqlalchemy.dialects import mysql

REVISIONS = ("0001", "0002")
"""The schema's revisions, oldest first; the last is the one that this version of the package needs."""

VERSION_TABLE = "allocator_schema_version"

metadata = MetaData()

tag_type = (
    String(64)
    .with_variant(String(64, collation="C"), "postgresql")
    .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
)
"""Tags are compared byte by byte: a server's default collation may take `Order` and `order` for one."""

segment = Table(
    "allocator_segment",
    metadata,
    Column("tag", tag_type, primary_key=True),
    Column("max_value", BigInteger, nullable=False),
    Column("step", BigInteger, nullable=False),
    Column("max_step", BigInteger, nullable=False),
    Column("id_limit", BigInteger, nullable=False),
    # Past 2**63 SQLite makes a REAL of an integer, which then stands still under every claim; the bounds refuse it.
    CheckConstraint(
        "max_value >= 0 AND max_value <= id_limit AND id_limit <= 9223372036854775807",
        name="allocator_segment_within_limit",
    ),
    CheckConstraint("step >= 1 AND step <= max_step", name="allocator_segment_step"),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)

node = Table(
    "allocator_node",
    metadata,
    # Without AUTOINCREMENT SQLite gives the number of a deleted row again.
    Column("id", BigInteger().with_variant(Integer, "sqlite"), Identity(always=True), primary_key=True),
    Column("host", String(255), nullable=False),
    Column("process", BigInteger, nullable=False),
    Column("version", String(32), nullable=False),
    Column("started_at", DateTime, nullable=False),
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
    sqlite_autoincrement=True,
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
    mysql_engine="InnoDB",
    mariadb_engine="InnoDB",
)
