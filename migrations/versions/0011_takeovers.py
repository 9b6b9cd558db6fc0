"""Taking over live columns: which ids belong to the column's own counter, and which to a tag.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INNODB = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


def place_type() -> sa.types.TypeEngine[str]:
    binary = mysql.VARCHAR(255, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(255).with_variant(binary, "mysql", "mariadb")


def tag_type() -> sa.types.TypeEngine[str]:
    return (
        sa.String(64)
        .with_variant(sa.String(64, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def upgrade() -> None:
    """MySQL commits each step by itself: a table that an upgrade which died has made is there already."""
    op.create_table(
        "allocator_takeover",
        sa.Column("place", place_type(), nullable=False),
        sa.Column("tag", tag_type(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("native_first", sa.BigInteger(), nullable=False),
        sa.Column("native_last", sa.BigInteger(), nullable=False),
        sa.Column("tag_first", sa.BigInteger(), nullable=False),
        sa.Column("tag_last", sa.BigInteger(), nullable=False),
        sa.Column("counter", place_type(), nullable=False),
        sa.Column("given", sa.BigInteger(), nullable=False),
        sa.Column("given_at", sa.BigInteger(), nullable=False),
        sa.Column("started_given", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place"),
        if_not_exists=True,
        **INNODB,
    )


def kept_by_the_allocator(connection: sa.Connection) -> str:
    """Why the downgrade would forget which ids may still meet; empty if it would not."""
    under_way = sa.text("SELECT count(*) FROM allocator_takeover WHERE state IN ('started', 'going back')")
    if rows := connection.scalar(under_way):
        return f"{rows} takeovers of allocator_takeover are under way; end them with: allocator takeover finish or back"
    return ""


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_takeover")
