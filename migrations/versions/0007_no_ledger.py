"""Drop the ledger: a log of claims replaces it.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

from alembic import op

from allocator.database.schema.downgrade import check_downgrade

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Upgrade. MySQL commits each step, so an interrupted upgrade may have dropped the table."""
    op.drop_table("allocator_ledger", if_exists=True)


def downgrade() -> None:
    check_downgrade(op.get_context(), revision)
    script = op.get_context().environment_context.script
    script.get_revision(down_revision).module.upgrade()  # an empty table: its rows are lost
