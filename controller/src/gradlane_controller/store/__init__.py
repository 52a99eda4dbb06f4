# SPDX-License-Identifier: Apache-2.0
"""What controllers keep and share: the jobs that came over HTTP, who leads, and the timeline of events.

One database (SQLite, or PostgreSQL for controllers on several hosts), by SQLAlchemy. Its tables are in `models`, their
history in `migrations`; each other module has the statements about one of them, as functions of a Session that
`Store.run` calls in a transaction.
"""

from gradlane_controller.store.database import Store

__all__ = ["Store"]
