# SPDX-License-Identifier: Apache-2.0
"""Brings a store's tables up to date, under a lock: several controllers may start at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

from gradlane_controller.errors import StoreError

_LOCK = 0x6772616C  # of PostgreSQL's advisory locks


def configuration(connection: Connection) -> Config:
    """Alembic's, for this connection."""
    it = Config()
    it.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    it.attributes["connection"] = connection
    return it


def upgrade(engine: Engine, name: str) -> None:
    """Nothing if all is up to date. Raises StoreError that names a store of a newer version."""
    with engine.begin() as connection:
        if not _behind(connection, name):
            return
    with engine.begin() as connection:  # on SQLite that is the lock
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        if _behind(connection, name):  # still
            command.upgrade(configuration(connection), "head")


def _behind(connection: Connection, name: str) -> bool:
    script = ScriptDirectory.from_config(configuration(connection))
    known = {each.revision for each in script.walk_revisions()}
    found = set(MigrationContext.configure(connection).get_current_heads())
    if unknown := sorted(found - known):
        last = script.get_current_head()
        raise StoreError(
            f"{name}: is of a newer version ({', '.join(unknown)}; this one knows those up to {last}): use a newer "
            "gradlane-controller, or another --store"
        )
    return found != set(script.get_heads())
