# SPDX-License-Identifier: Apache-2.0
"""Jobs, leadership, and the timeline."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Makes the tables."""
    op.create_table(
        "jobs",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    )
    leadership = op.create_table(
        "leadership",
        sa.Column("id", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(32), nullable=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
        sa.Column("clock", sa.String(64), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
    )
    op.bulk_insert(
        leadership,
        [{"id": 1, "number": 0, "holder": None, "name": "", "expires": 0.0, "clock": "", "revision": 0}],
    )
    op.create_table(
        "controllers",
        sa.Column("holder", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("reach", sa.Integer(), nullable=False),
        sa.Column("seen", sa.Float(53), nullable=False),
        sa.Column("clock", sa.String(64), nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("controller", sa.String(255), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(255), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sqlite_autoincrement=True,
    )
