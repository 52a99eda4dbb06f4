# SPDX-License-Identifier: Apache-2.0
"""Brings a store's tables up to date, under a lock: several controllers may start at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, func, select

from gradlane_controller.errors import StoreError
from gradlane_controller.store.engine import connect, shown

_LOCK = 0x6772616C  # of PostgreSQL's advisory locks


def configuration(connection: Connection) -> Config:
    """Alembic's, for this connection."""
    it = Config()
    it.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    it.attributes["connection"] = connection
    return it


def upgrade(url: URL) -> None:
    """Nothing if all is up to date. Raises StoreError that names a store of a newer version."""
    newest, *_ = revisions()
    engine, name = connect(url, longer=True), shown(url)
    try:
        with engine.begin() as connection:
            if revision(connection, name) == newest:
                return
        with engine.begin() as connection:  # on SQLite that is the lock
            lock(connection)
            if revision(connection, name) != newest:  # still
                command.upgrade(configuration(connection), "head")
    finally:
        engine.dispose()


def lock(connection: Connection) -> None:
    """Until the transaction ends nobody else changes the tables themselves; SQLite has such a lock already."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))


def revisions() -> list[str]:
    """All that are known, the newest first."""
    script = ScriptDirectory(str(Path(__file__).parent / "migrations"))
    return [each.revision for each in script.walk_revisions()]


def revision(connection: Connection, name: str) -> str | None:
    """Of the tables; None: there are none. Raises StoreError that names a store of a newer version."""
    found = MigrationContext.configure(connection).get_current_revision()
    known = revisions()
    if found is not None and found not in known:
        raise StoreError(
            f"{name}: is of a newer version ({found}; this one knows those up to {known[0]}): use a newer "
            "gradlane-controller, or another --store"
        )
    return found
