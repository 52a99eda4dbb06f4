# SPDX-License-Identifier: Apache-2.0
"""Pictures of the last hour and day."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "pictures",
        sa.Column("at", sa.DateTime(timezone=True), primary_key=True),
        sa.Column("lasting", sa.Boolean(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
    )
