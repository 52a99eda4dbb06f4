# SPDX-License-Identifier: Apache-2.0
"""Connections to a store, each statement of which ends in bounded time."""

import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from gradlane_controller.errors import StoreError

WAIT_SECONDS = 1.0  # for a lock, or for a connection of the pool
STATEMENT_SECONDS = 2.0
LONGER_SECONDS = 60.0  # that a statement, or a pause between two, may take where the whole store is at work
CONNECT_SECONDS = 2  # the least that libpq takes
POOL = 4
LOG_BYTES = 1 << 20  # of SQLite's write-ahead log, that are reserved,
LOG_PAGES = 16  # as it begins anew after so many: what needs no new page needs no space on the disk
ROOM_BYTES = 4 << 20  # that have to be left on the disk for what needs new pages
_PASSWORD = "hidden"


def parse(url: str) -> URL:
    """Raises StoreError if it names no database that can be used here."""
    kinds = "sqlite:///FILE or postgresql+psycopg://USER@HOST/DATABASE"
    try:
        it = make_url(url)
    except (ArgumentError, ValueError):
        raise StoreError(f"the store must be {kinds}, and this is no URL") from None
    if it.drivername == "postgresql":
        it = it.set(drivername="postgresql+psycopg")
    if it.drivername == "sqlite" and it.database and it.database != ":memory:":
        return it
    if it.drivername == "postgresql+psycopg":
        return it
    raise StoreError(f"{shown(it)}: the store must be {kinds}")


def shown(url: URL) -> str:
    """For people: without the password."""
    if "password" in url.query:
        url = url.update_query_dict({"password": _PASSWORD})
    return f"store {url.render_as_string(hide_password=True)}"


def connect(url: URL, *, longer: bool = False) -> Engine:
    """Nothing is opened yet, but a file made that only its owner may read. `longer`: for what is at work on the whole
    store; from the first statement on it may take longer than a controller. Raises StoreError."""
    if url.drivername == "sqlite":
        return _sqlite(url)
    statement, pause = (LONGER_SECONDS, LONGER_SECONDS) if longer else (STATEMENT_SECONDS, WAIT_SECONDS)
    return create_engine(
        url,
        pool_size=POOL,
        max_overflow=0,
        pool_timeout=WAIT_SECONDS,
        pool_pre_ping=True,  # the server may have been started anew
        connect_args={
            "connect_timeout": CONNECT_SECONDS,
            "options": f"-c statement_timeout={statement:g}s -c lock_timeout={WAIT_SECONDS:g}s "
            f"-c idle_in_transaction_session_timeout={pause:g}s",
            "tcp_user_timeout": int(1000 * STATEMENT_SECONDS),
            "keepalives_idle": 1,
            "keepalives_interval": 1,
            "keepalives_count": 2,
            "application_name": "gradlane-controller",
        },
    )


def check_room(url: URL) -> None:
    """Raises StoreError if the disk is nearly full: what commits all the same fills SQLite's log, and is in the way of
    those who need no space."""
    if url.drivername != "sqlite" or url.database is None:
        return
    try:
        left = os.statvfs(Path(url.database).parent)
    except OSError as problem:
        raise StoreError(f"{shown(url)}: {problem.strerror}") from None
    if left.f_bavail * left.f_frsize < ROOM_BYTES:
        raise StoreError(f"{shown(url)}: less than {ROOM_BYTES >> 20} MiB are left on its disk; make room")


def reserve(url: URL) -> None:
    """Makes SQLite's log as long as it has to be, so that a full disk does not matter to what needs no new page. The
    log must be there, as it is while there are connections."""
    if url.drivername == "sqlite":
        with suppress(OSError), open(f"{url.database}-wal", "r+b") as log:
            os.posix_fallocate(log.fileno(), 0, LOG_BYTES)


def settle(engine: Engine) -> None:
    """New pages move from SQLite's log into its file while there is room for them: without, the log could not begin
    anew. What can't move yet stays in the log, and is kept all the same."""
    if engine.dialect.name == "sqlite":
        with suppress(sqlite3.Error, SQLAlchemyError), engine.connect() as connection:
            connection.connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").close()


def failure(url: URL, problem: SQLAlchemyError) -> StoreError:
    """What a failed statement means."""
    cause = problem.orig if isinstance(problem, DBAPIError) else problem
    unsure = isinstance(problem, DBAPIError) and problem.connection_invalidated
    reason = " ".join(str(cause).split())[:500] or type(cause).__name__
    for part, remedy in _REMEDIES.items():
        if part in reason:
            reason = f"{reason}; {remedy}"
            break
    return StoreError(f"{shown(url)}: {reason}", unsure=unsure)


_REMEDIES: Mapping[str, str] = {
    "unable to open database file": "its folder must be there, and this user must be allowed to write to it",
    "readonly": "this user must be allowed to write to the file and to its folder",
    "disk is full": "make room on its disk",
    "is not a database": "name another file",
    "password": "the URL, or a file .pgpass, has to have it",
}


def _sqlite(url: URL) -> Engine:
    assert url.database is not None
    file = Path(url.database)
    try:
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # SQLite's other files get its rights
    except OSError as problem:
        raise StoreError(f"{shown(url)}: can't be written: {problem.strerror}") from None
    engine = create_engine(
        url,
        pool_size=POOL,
        max_overflow=0,
        pool_timeout=WAIT_SECONDS,
        connect_args={"timeout": WAIT_SECONDS},
    )

    def opened(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # transactions begin below, not when the driver thinks so
        for pragma in ("journal_mode=WAL", f"wal_autocheckpoint={LOG_PAGES}"):
            connection.execute(f"PRAGMA {pragma}").close()

    def begin(connection: Connection) -> None:
        # Who reads first and then writes would have to give up if another one has written meanwhile.
        kind = connection.get_execution_options().get("kind")
        connection.exec_driver_sql(f"PRAGMA synchronous={'NORMAL' if kind == 'single' else 'FULL'}")
        if kind != "single":
            connection.exec_driver_sql("BEGIN" if kind == "reads" else "BEGIN IMMEDIATE")

    event.listen(engine, "connect", opened)
    event.listen(engine, "begin", begin)
    return engine


def reading(engine: Engine) -> Engine:
    """The same connections, for transactions that only read."""
    options: dict[str, Any] = {"kind": "reads"}
    return engine.execution_options(**options)


def single(engine: Engine) -> Engine:
    """The same connections, for statements that are a transaction each, and that a loss of power may undo. Nobody has
    to wait for a process that is paused between two of them."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="AUTOCOMMIT")
    options: dict[str, Any] = {"kind": "single"}
    return engine.execution_options(**options)
