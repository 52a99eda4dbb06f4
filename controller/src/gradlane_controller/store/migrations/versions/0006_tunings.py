# SPDX-License-Identifier: Apache-2.0
"""How jobs are tuned."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Makes the table."""
    op.create_table(
        "tunings",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("state", sa.JSON(), nullable=False),
    )
