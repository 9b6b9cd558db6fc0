"""The tokens of the service.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    name = (
        sa.String(64)
        .with_variant(sa.String(64, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )
    op.create_table(
        "allocator_token",
        sa.Column("id", number, sa.Identity(always=True), nullable=False),
        sa.Column("name", name, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("verbs", sa.String(64), nullable=False),
        sa.Column("tags", sa.String(1000), nullable=False),
        sa.Column("ids_rate", sa.BigInteger(), nullable=True),
        sa.Column("requests_rate", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(), nullable=False),
        sa.Column("expires_at", sa.DateTime(), nullable=True),
        sa.Column("revoked_at", sa.DateTime(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
        sqlite_autoincrement=True,
    )


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_token")
