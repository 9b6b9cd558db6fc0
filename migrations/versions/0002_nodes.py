"""The registry of nodes and the leases of workers.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from allocator.database.schema.downgrade import check_downgrade

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "allocator_node",
        sa.Column("id", number, sa.Identity(always=True), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(32), nullable=False),
        sa.Column("started_at", sa.DateTime(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
        sqlite_autoincrement=True,
    )
    op.create_table(
        "allocator_worker",
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("layout", sa.String(40), nullable=False),
        sa.Column("epoch_ms", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(32), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("process", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("number"),
        mysql_engine="InnoDB",
        mariadb_engine="InnoDB",
    )


def kept_by_the_allocator(connection: sa.Connection) -> str:
    """The reason why a downgrade would forget numbers, or an empty string."""
    for table in ("allocator_node", "allocator_worker"):
        if rows := connection.scalar(sa.text(f"SELECT count(*) FROM {table}")):
            return (
                f"{rows} rows of {table} keep numbers from being used again; "
                "empty the table by hand if no id made with them is in use any more"
            )
    return ""


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    op.drop_table("allocator_worker")
    op.drop_table("allocator_node")
