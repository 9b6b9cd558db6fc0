"""The table of the segment scheme.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0001"
down_revision = None
branch_labels = ("allocator",)
depends_on = None


def upgrade() -> None:
    tag = (
        sa.String(64)
        .with_variant(sa.String(64, collation="C"), "postgresql")
        .with_variant(mysql.VARCHAR(64, charset="ascii", collation="ascii_bin"), "mysql", "mariadb")
    )
    op.create_table(
        "allocator_segment",
        sa.Column("tag", tag, nullable=False),
        sa.Column("max_value", sa.BigInteger(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("max_step", sa.BigInteger(), nullable=False),
        sa.Column("id_limit", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("tag"),
        sa.CheckConstraint(
            "max_value >= 0 AND max_value <= id_limit AND id_limit <= 9223372036854775807",
            name="allocator_segment_within_limit",
        ),
        sa.CheckConstraint("step >= 1 AND step <= max_step", name="allocator_segment_step"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def kept_by_the_allocator(connection: sa.Connection) -> str:
    """The reason why a downgrade would forget ids, or an empty string."""
    if tags := connection.scalar(sa.text("SELECT count(*) FROM allocator_segment WHERE max_value > 0")):
        return (
            f"{tags} tags have given out ids, and without allocator_segment they would be given again; "
            "empty the table by hand if none of these ids is in use any more"
        )
    return ""


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_segment")
