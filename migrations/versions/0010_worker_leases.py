"""Worker numbers for any generator: who holds which number of a space, and until when.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

from time import time

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

INNODB = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


def space_type() -> sa.types.TypeEngine[str]:
    return (
        sa.String(64)
        .with_variant(sa.String(64, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def upgrade() -> None:
    """MySQL commits each step by itself: a table that an upgrade which died has made is there already."""
    op.create_table(
        "allocator_lease",
        sa.Column("space", space_type(), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("bits", sa.Integer(), nullable=False),
        sa.Column("length_ms", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("used_until_ms", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("space", "number"),
        if_not_exists=True,
        **INNODB,
    )


def kept_by_the_allocator(connection: sa.Connection) -> str:
    """Why the downgrade would forget who holds a number; empty if it would not."""
    now = int(time() * 1000)
    held = sa.text(
        "SELECT count(*) FROM allocator_lease "
        "WHERE (holder <> '' AND until_ms + length_ms >= :now) OR used_until_ms >= :now"
    )
    if rows := connection.scalar(held, {"now": now}):
        return f"{rows} numbers of allocator_lease are held; stop what holds them, and wait for the end of their leases"
    return ""


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_lease")
