"""Server runs of tags, and the gap that a tag skips after a failover or a restore.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def run_type() -> sa.types.TypeEngine[str]:
    ascii_only = mysql.VARCHAR(255, charset="ascii", collation="ascii_bin")
    return sa.String(255).with_variant(ascii_only, "mysql", "mariadb")


def upgrade() -> None:
    """Upgrade. MySQL commits each step, so skip the steps of an interrupted upgrade."""
    there = parts()
    if "epoch" not in there:
        op.add_column("allocator_segment", sa.Column("epoch", run_type(), server_default="", nullable=False))
    if "margin" not in there:
        margin = sa.Column("margin", sa.BigInteger(), server_default="1000000000", nullable=False)
        op.add_column("allocator_segment", margin)
    op.execute(
        "UPDATE allocator_segment SET margin = CASE WHEN id_limit / 100 > max_step THEN id_limit / 100 "
        "ELSE max_step END WHERE id_limit < 100000000000"
    )
    op.execute("UPDATE allocator_segment SET margin = 1000 * max_step WHERE max_step > 1000000 AND margin = 1000000000")
    if "allocator_epoch" not in there:
        make_epoch()


def parts() -> set[str]:
    if op.get_context().as_sql:
        return set()
    inspector = sa.inspect(op.get_bind())
    return {str(column["name"]) for column in inspector.get_columns("allocator_segment")} | {
        *inspector.get_table_names()
    }


def make_epoch() -> None:
    op.create_table(
        "allocator_epoch",
        sa.Column("id", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("server", sa.String(255), nullable=False),
        sa.Column("run", run_type(), nullable=False),
        sa.Column("first_value", sa.BigInteger(), nullable=False),
        sa.Column("leases_from_ms", sa.BigInteger(), nullable=False),
        sa.Column("leases_ahead_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("id = 1", name="allocator_epoch_one_row"),
        sa.PrimaryKeyConstraint("id"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_epoch")
    for column in ("margin", "epoch"):
        op.drop_column("allocator_segment", column)
