"""Numbers without gaps: the newest of each name, scope and period, and those that are void.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INNODB = {"mysql_engine": "InnoDB", "mariadb_engine": "InnoDB"}


def name_type(length: int) -> sa.types.TypeEngine[str]:
    return (
        sa.String(length)
        .with_variant(sa.String(length, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(length, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def key() -> list[sa.Column[str]]:
    lengths = {"name": 64, "scope": 64, "period": 10}
    return [sa.Column(name, name_type(length), nullable=False) for name, length in lengths.items()]


def upgrade() -> None:
    """MySQL commits each step by itself: a table that an upgrade which died has made is there already."""
    op.create_table(
        "allocator_number",
        *key(),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("n >= 1 AND n <= 9223372036854775807", name="allocator_number_within_limit"),
        sa.PrimaryKeyConstraint("name", "scope", "period"),
        if_not_exists=True,
        **INNODB,
    )
    op.create_table(
        "allocator_number_void",
        *key(),
        sa.Column("n", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("written", sa.String(255), nullable=False),
        sa.Column("reason", sa.String(255), nullable=False),
        sa.Column("voided_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("name", "scope", "period", "n"),
        if_not_exists=True,
        **INNODB,
    )


def kept_by_the_allocator(connection: sa.Connection) -> str:
    """Why the downgrade would forget numbers; empty if it would not."""
    for table in ("allocator_number", "allocator_number_void"):
        if rows := connection.scalar(sa.text(f"SELECT count(*) FROM {table}")):
            return (
                f"{rows} rows of {table} keep numbers from being given out again; "
                "empty the table by hand if no application draws them any more"
            )
    return ""


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_number_void")
    op.drop_table("allocator_number")
