# SPDX-License-Identifier: Apache-2.0
"""Jobs without a job file, and the host that a token is for."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Makes the table and the column."""
    op.create_table(
        "trainings",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("owner", sa.String(16), nullable=False),
        sa.Column("template", sa.String(64), nullable=False),
        sa.Column("created", sa.DateTime(timezone=True), nullable=False),
    )
    op.add_column("tokens", sa.Column("host", sa.String(63), nullable=True))
