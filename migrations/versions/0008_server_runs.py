"""No gap after a restart: rows name the server run that wrote them, and count the ids that they really issued.

Rows written by the current server continue without a gap, whenever it was started. For other rows, the next claim skips
the failover gap.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

from allocator.database.schema.downgrade import check_downgrade

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

SERVER = (
    "(SELECT system_identifier FROM pg_control_system()) || '/' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) "
    "|| '/' || (SELECT oid FROM pg_database WHERE datname = current_database())"
)
WROTE_IT = {
    "postgresql": "{run} LIKE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) || '/%/' || "
    f"pg_relation_filepath('allocator_segment') AND EXISTS (SELECT 1 FROM allocator_epoch WHERE server = {SERVER})",
    "mysql": "CONCAT(',', {run}) LIKE CONCAT('%,', "
    "HEX(CRC32(CONCAT_WS('/', @@server_id, @@hostname, @@port, @@datadir, DATABASE()))), '-%')",
}
"""Conditions on an old row: the current server wrote it, whenever that was started."""

COMPUTED = (
    "margin IN (1000000000, 1000 * max_step, max_step) "
    "OR (id_limit / 100 >= margin - 1 AND id_limit / 100 <= margin + 1)"
)
"""Margins that the allocator computed and no user chose."""


def run_type() -> sa.types.TypeEngine[str]:
    ascii_only = mysql.VARCHAR(255, charset="ascii", collation="ascii_bin")
    return sa.String(255).with_variant(ascii_only, "mysql", "mariadb")


def text_column(name: str) -> sa.Column[str]:
    return sa.Column(name, run_type(), server_default="", nullable=False)


def number_column(name: str, default: int) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), server_default=str(default), nullable=False)


def upgrade() -> None:
    """Upgrade. MySQL commits each step, so skip the steps of an interrupted upgrade."""
    add("allocator_segment", text_column("server_run"), number_column("failover_gap", -2))
    add("allocator_segment", number_column("skipped", 0), number_column("claimed_at", 0))
    if has("allocator_segment", "margin"):
        op.execute(f"UPDATE allocator_segment SET failover_gap = margin WHERE margin < 1 OR NOT ({COMPUTED})")
        op.drop_column("allocator_segment", "margin")
    if has("allocator_segment", "epoch"):
        op.execute(f"UPDATE allocator_segment SET server_run = {unless_ours('allocator_segment', 'epoch')}")
        op.drop_column("allocator_segment", "epoch")
    if has("allocator_epoch", "run"):
        add("allocator_epoch", text_column("server_run"))
        op.execute(f"UPDATE allocator_epoch SET server_run = {unless_ours('allocator_epoch', 'run')}")
        op.drop_column("allocator_epoch", "run")
    if has("allocator_epoch", "server"):
        op.drop_column("allocator_epoch", "server")
    if has("allocator_epoch", "id"):
        op.rename_table("allocator_epoch", "allocator_failover")
    op.execute("UPDATE allocator_shard SET server = '' WHERE shard_step = 1")


def downgrade() -> None:
    """Downgrade. The older version takes every row for that of another server, and skips ids with the next claim."""
    check_downgrade(op.get_context(), revision)
    add("allocator_segment", text_column("epoch"), number_column("margin", 1_000_000_000))
    if has("allocator_segment", "failover_gap"):
        op.execute("UPDATE allocator_segment SET margin = failover_gap WHERE failover_gap <> -2")
        op.execute("UPDATE allocator_segment SET epoch = 'newer'")
    for column in ("server_run", "failover_gap", "skipped", "claimed_at"):
        if has("allocator_segment", column):
            op.drop_column("allocator_segment", column)
    if has("allocator_failover", "id"):
        op.rename_table("allocator_failover", "allocator_epoch")
    server = sa.Column("server", sa.String(255), server_default="newer", nullable=False)
    add("allocator_epoch", server, text_column("run"))
    if has("allocator_epoch", "server_run"):
        op.drop_column("allocator_epoch", "server_run")


def unless_ours(table: str, column: str) -> str:
    """The server run for a row: empty if the current server wrote it, so that the next claim continues without a gap.

    Managed databases refuse the condition, but their rows name no run.
    """
    rows = f"SELECT count(*) FROM {table} WHERE {column} <> ''"
    if not op.get_context().as_sql and not op.get_bind().scalar(sa.text(rows)):
        return column
    name = op.get_context().dialect.name
    condition = WROTE_IT.get("mysql" if name == "mariadb" else name)
    return f"CASE WHEN {condition.format(run=column)} THEN '' ELSE {column} END" if condition else column


def has(table: str, column: str) -> bool:
    """Tell whether a column exists. Offline (--sql), answer True so that every step is printed."""
    if op.get_context().as_sql:
        return True
    inspector = sa.inspect(op.get_bind())
    return inspector.has_table(table) and column in {found["name"] for found in inspector.get_columns(table)}


def add(table: str, *added: sa.Column[Any]) -> None:
    for column in added:
        if op.get_context().as_sql or not has(table, column.name):
            op.add_column(table, column)
