"""Tickets, and the shards of a fleet.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INNODB = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


def name_type() -> sa.types.TypeEngine[str]:
    return (
        sa.String(64)
        .with_variant(sa.String(64, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def upgrade() -> None:
    for column in ("shard_offset", "shard_step"):
        op.add_column("allocator_segment", sa.Column(column, sa.BigInteger(), server_default="1", nullable=False))
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "allocator_ticket",
        sa.Column("id", number, sa.Identity(always=False), nullable=False),
        sa.Column("type", name_type(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("type"),
        sqlite_autoincrement=True,
        **INNODB,
    )
    op.create_table(
        "allocator_ticket_counter",
        sa.Column("type", name_type(), nullable=False),
        sa.Column("id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("type"),
        **INNODB,
    )
    op.create_table(
        "allocator_shard",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("fleet", name_type(), nullable=False),
        sa.Column("shard_key", sa.String(32), nullable=False),
        sa.Column("server", sa.String(255), nullable=False),
        sa.Column("statement", sa.String(16), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("shard_offset", sa.BigInteger(), nullable=False),
        sa.Column("shard_step", sa.BigInteger(), nullable=False),
        sa.Column("floor", sa.BigInteger(), nullable=False),
        sa.Column("ceiling", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("members", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=True),
        sa.CheckConstraint("id = 1", name="allocator_shard_one_row"),
        sa.PrimaryKeyConstraint("id"),
        **INNODB,
    )


def kept_by_the_allocator(connection: sa.Connection) -> str:
    """The reason why a downgrade would forget ids, or an empty string."""
    # Skip the row that an upgrade writes for a single database: it does not protect any ids.
    tables = ("allocator_ticket", "allocator_ticket_counter", "allocator_shard WHERE revision <> 1 OR shard_step <> 1")
    for source in tables:
        table = source.partition(" ")[0]
        if rows := connection.scalar(sa.text(f"SELECT count(*) FROM {source}")):
            return (
                f"{rows} rows of {table} keep ids from being given out again; "
                "empty the table by hand if none of them is in use any more"
            )
    if tags := connection.scalar(sa.text("SELECT count(*) FROM allocator_segment WHERE shard_step <> 1")):
        return f"{tags} tags are served by several databases, which revision 0002 cannot"
    return ""


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    for table in ("allocator_shard", "allocator_ticket_counter", "allocator_ticket"):
        op.drop_table(table)
    for column in ("shard_step", "shard_offset"):
        op.drop_column("allocator_segment", column)
