"""The ledger, with a row per claim.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def tag_type() -> sa.types.TypeEngine[str]:
    return (
        sa.String(64)
        .with_variant(sa.String(64, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )


def upgrade() -> None:
    """Upgrade. MySQL commits each step, so skip the steps of an interrupted upgrade."""
    there = parts()
    if "allocator_ledger" not in there:
        make_ledger()
    if "allocator_ledger_by_time" not in there:
        op.create_index("allocator_ledger_by_time", "allocator_ledger", ["claimed_s"])


def parts() -> set[str]:
    if op.get_context().as_sql:
        return set()
    inspector = sa.inspect(op.get_bind())
    if not inspector.has_table("allocator_ledger"):
        return set()
    return {"allocator_ledger", *(str(index["name"]) for index in inspector.get_indexes("allocator_ledger"))}


def make_ledger() -> None:
    op.create_table(
        "allocator_ledger",
        sa.Column("tag", tag_type(), nullable=False),
        sa.Column("above", sa.BigInteger(), nullable=False),
        sa.Column("upto", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("shard_offset", sa.BigInteger(), nullable=False),
        sa.Column("shard_step", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("claimed_s", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tag", "upto"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    if op.get_context().as_sql or "allocator_ledger" in parts():
        op.drop_table("allocator_ledger")
