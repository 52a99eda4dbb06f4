# SPDX-License-Identifier: Apache-2.0
"""What Alembic runs: the migrations, on the connection and in the transaction that it was given."""

from alembic import context

from gradlane_controller.store.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,  # SQLite changes a table by making another
)
context.run_migrations()
