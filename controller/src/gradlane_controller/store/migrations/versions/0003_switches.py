# SPDX-License-Identifier: Apache-2.0
"""Which switches are drained, and their numbers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "switches",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("drained", sa.Boolean(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=True),
    )
