"""All tables.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.util import CommandError
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision = None
branch_labels = ("allocator",)
depends_on = None

TABLES = (
    "allocator_segment",
    "allocator_node",
    "allocator_ticket",
    "allocator_token",
    "allocator_shard",
    "allocator_number",
    "allocator_number_void",
    "allocator_lease",
)

PROTECTING = {
    "allocator_segment": " WHERE max_value > 0",
    "allocator_shard": " WHERE slots <> 1 OR new_tags_above > 0",
}
"""Conditions under which a row protects ids; every row of the other tables does."""


def upgrade() -> None:
    create(
        "allocator_segment",
        *key(tag=72),
        *counts("max_value", "step", "max_step", "id_limit"),
        sa.Column("shard_offset", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("shard_step", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("move", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("failover_gap", sa.BigInteger(), server_default="-2", nullable=False),
        sa.Column("skipped", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("claimed_at", sa.BigInteger(), server_default="0", nullable=False),
        sa.CheckConstraint(
            "max_value >= 0 AND max_value <= id_limit AND id_limit <= 9223372036854775807",
            name="allocator_segment_within_limit",
        ),
        sa.CheckConstraint("step >= 1 AND step <= max_step", name="allocator_segment_step"),
    )
    create(
        "allocator_node",
        numbered(always=True),
        *process(),
        text("version", 32),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.Column("slot", sa.BigInteger(), server_default="1", nullable=False),
        sa.Column("slots", sa.BigInteger(), server_default="1", nullable=False),
        sqlite_autoincrement=True,
    )
    create(
        "allocator_ticket",
        numbered(always=False),
        sa.Column("type", name_type(64), nullable=False),
        sa.UniqueConstraint("type"),
        sqlite_autoincrement=True,
    )
    create(
        "allocator_token",
        numbered(always=True),
        sa.Column("name", name_type(64), nullable=False),
        text("digest", 64),
        text("verbs", 64),
        text("tags", 1000),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=True),
        sa.Column("revoked_at", sa.DateTime(), nullable=True),
        sa.UniqueConstraint("digest"),
        sqlite_autoincrement=True,
    )
    create(
        "allocator_shard",
        sa.Column("id", sa.SmallInteger(), primary_key=True, autoincrement=False),
        text("fleet", 8),
        text("tickets", 16),
        *counts("slot", "slots"),
        text("taken", 255),
        *counts("taken_under", "taken_for"),
        sa.Column("server_run", ascii_text(255), nullable=False),
        *counts("move", "new_tags_above", "moved_at", "made"),
        sa.CheckConstraint("id = 1", name="allocator_shard_one_row"),
    )
    create(
        "allocator_number",
        *key(name=64, scope=64, period=10),
        *counts("n"),
        sa.Column("rule", ascii_text(255), server_default="", nullable=False),
        sa.CheckConstraint("n >= 1 AND n <= 9223372036854775807", name="allocator_number_within_limit"),
    )
    create(
        "allocator_number_void",
        *key(name=64, scope=64, period=10),
        sa.Column("n", sa.BigInteger(), primary_key=True, autoincrement=False),
        text("written", 255),
        text("reason", 255),
        sa.Column("voided_at", sa.DateTime(), nullable=False),
    )
    create(
        "allocator_lease",
        *key(space=64),
        number("number"),
        sa.Column("bits", sa.Integer(), nullable=False),
        *counts("length_ms"),
        text("holder", 32),
        *counts("renewals", "until_ms", "used_until_ms"),
        *process(),
        text("format", 64),
    )


def downgrade() -> None:
    """Drop the tables; refuse before the first one if a row would be forgotten, since its ids could be given again."""
    if not op.get_context().as_sql:
        for table in TABLES:
            rows = sa.text(f"SELECT count(*) FROM {table}{PROTECTING.get(table, '')}")
            if found := op.get_bind().scalar(rows):
                raise CommandError(
                    f"{table} holds {found} rows, and without them ids or numbers could be given again; "
                    "no table was dropped. If nobody uses these ids any more, empty the table first"
                )
    for table in reversed(TABLES):
        op.drop_table(table)


def create(name: str, *parts: Any, **options: Any) -> None:
    """Create a table, unless the connection sees it.

    MySQL and MariaDB commit each table by itself: an upgrade that died has left some of them. On PostgreSQL
    `IF NOT EXISTS` asks the first schema of the search_path alone, and a table there would hide the one in use.
    """
    if op.get_context().as_sql or not sa.inspect(op.get_bind()).has_table(name):
        op.create_table(name, *parts, if_not_exists=True, mysql_engine="InnoDB", mariadb_engine="InnoDB", **options)


def ascii_text(length: int) -> sa.types.TypeEngine[str]:
    """Text that MySQL and MariaDB compare byte by byte."""
    bytewise = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(bytewise, "mysql", "mariadb")


def name_type(length: int) -> sa.types.TypeEngine[str]:
    return ascii_text(length).with_variant(sa.String(length, collation="C"), "postgresql")


def key(**lengths: int) -> list[sa.Column[str]]:
    return [sa.Column(name, name_type(length), primary_key=True) for name, length in lengths.items()]


def counts(*names: str) -> list[sa.Column[int]]:
    return [sa.Column(name, sa.BigInteger(), nullable=False) for name in names]


def text(name: str, length: int) -> sa.Column[str]:
    return sa.Column(name, sa.String(length), nullable=False)


def number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.Integer(), primary_key=True, autoincrement=False)


def numbered(always: bool) -> sa.Column[int]:
    """The auto-increment key. SQLite numbers only INTEGER, which has 64 bits there."""
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("id", kind, sa.Identity(always=always), primary_key=True)


def process() -> list[sa.Column[Any]]:
    return [text("host", 255), *counts("process")]
