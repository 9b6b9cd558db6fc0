"""Tags bound to columns, so that the doctor looks at both.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0012"
down_revision = "0011"
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
        "allocator_binding",
        sa.Column("place", place_type(), nullable=False),
        sa.Column("tag", tag_type(), nullable=False),
        sa.Column("greatest", sa.BigInteger(), nullable=False),
        sa.Column("tag_first", sa.BigInteger(), nullable=False),
        sa.Column("issued", sa.BigInteger(), nullable=False),
        sa.Column("bound_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("place"),
        if_not_exists=True,
        **INNODB,
    )


def downgrade() -> None:
    """No id depends on a binding."""
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_binding")
