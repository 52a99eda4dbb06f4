# SPDX-License-Identifier: Apache-2.0
"""A store as a file, and back: JSON Lines (jsonlines.org) in gzip (RFC 1952), the same for every database.

The first line says of which revision of the tables the rest is, each other one is a row: its table, and its columns as
JSON has them, times in ISO 8601 and bytes in base64. gzip's checksum tells a file that is cut off or damaged. Tables
are those that the database says it has, so that files of any known revision can be written and read.
"""

import base64
import gzip
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from alembic import command
from sqlalchemy import Column, Connection, DateTime, Engine, LargeBinary, MetaData, Table, func, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from gradlane.toml_file import FileError
from gradlane_controller.errors import StoreError
from gradlane_controller.store import lease, schema
from gradlane_controller.store.engine import check_room, connect, failure, parse, reading, settle, shown
from gradlane_controller.store.models import Base, EventRow, LeadershipRow

FORMAT = "gradlane store 1"
COUNT_SECONDS = 1024  # what leaders and changes count on by for each second since 1970, at least, after a restore
_MAX_LINE = 64 << 20  # characters
_BATCH = 64  # rows
_NOT_KEPT = {"alembic_version", "controllers"}  # the revision is in the first line; who stands by says so itself
_ALWAYS = {"leadership"}  # has its row in an empty store, too


class BackupError(FileError):
    """A backup that can't be used."""


@dataclass(frozen=True)
class Done:
    """What was written or read: of which revision, when it was made (UTC), and how many rows of each table."""

    revision: str
    at: datetime
    rows: Mapping[str, int]


def backup(url: str, file: Path) -> Done:
    """Writes all that a store has at one moment into a new file, which only its owner may read. Others go on meanwhile.
    Raises StoreError, or BackupError if the file can't be written, or is there already."""
    where = parse(url)
    if where.drivername == "sqlite" and not Path(str(where.database)).exists():
        raise StoreError(f"{shown(where)}: there is no such file")
    engine = connect(where, longer=True)
    try:
        with _new(file) as output, _whole(engine).begin() as connection:
            return _write(connection, output, shown(where))
    except SQLAlchemyError as problem:
        raise failure(where, problem) from None
    finally:
        engine.dispose()


def restore(url: str, file: Path, *, replace: bool) -> Done:
    """Puts back what a file has: all of it, or nothing. `replace`: in the place of what the store has.

    Raises BackupError; StoreError also if a controller leads or stands by, or if the store has something and it is not
    to be replaced.
    """
    where = parse(url)
    name = shown(where)
    with _opened(file) as lines:
        done = _head(file, lines)
        engine = connect(where, longer=True)
        try:
            check_room(where)
            with engine.begin() as connection:  # on SQLite that is the lock
                schema.lock(connection)
                last = _clear(connection, name, replace=replace)
                command.upgrade(schema.configuration(connection), done.revision)
                rows = _read(connection, file, lines)
                command.upgrade(schema.configuration(connection), "head")
                _count_on(connection, file, last, done.at)
            settle(engine)
        except SQLAlchemyError as problem:
            raise failure(where, problem) from None
        finally:
            engine.dispose()
    return Done(done.revision, done.at, rows)


@contextmanager
def _new(file: Path) -> Generator[IO[str], None, None]:
    """A file that is there when it is whole."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        if file.exists():
            raise FileExistsError
        with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as raw:
            try:
                with gzip.open(raw, "wt", compresslevel=3, encoding="utf-8") as output:
                    yield output
                raw.flush()
                os.fsync(raw.fileno())
                os.link(temporary, file)
            finally:
                temporary.unlink()
    except FileExistsError:
        raise BackupError(str(file), "", "is there already; name a new file") from None
    except OSError as problem:
        raise BackupError(str(file), "", f"can't be written: {problem.strerror}") from None


@contextmanager
def _opened(file: Path) -> Generator[Iterator[tuple[int, Any]], None, None]:
    """Its lines, and their numbers."""
    with ExitStack() as stack:
        try:
            opened = stack.enter_context(gzip.open(file, "rt", encoding="utf-8"))
        except OSError as problem:
            raise BackupError(str(file), "", f"can't be read: {problem.strerror}") from None
        yield _lines(file, opened)


def _lines(file: Path, opened: IO[str]) -> Iterator[tuple[int, Any]]:
    number = 0
    while True:
        number += 1
        try:
            line = opened.readline(_MAX_LINE)
        except (OSError, EOFError, zlib.error, UnicodeDecodeError):
            raise BackupError(str(file), "", "is cut off or damaged, or no backup", number) from None
        if not line:
            return
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):
            raise BackupError(str(file), "", "is not JSON", number) from None


def _head(file: Path, lines: Iterator[tuple[int, Any]]) -> Done:
    match next(lines, (1, None))[1]:
        case {"format": str(form), "revision": str(revision), "at": str(at)} if form == FORMAT:
            pass
        case _:
            raise BackupError(str(file), "", "is no backup of a controller's store", 1)
    if revision not in (known := schema.revisions()):
        newest = f"is of a newer version ({revision}; this one knows those up to {known[0]}): use a newer controller"
        raise BackupError(str(file), "revision", newest, 1)
    try:
        return Done(revision, datetime.fromisoformat(at).astimezone(timezone.utc), {})
    except ValueError:
        raise BackupError(str(file), "at", "must be a time in ISO 8601", 1) from None


def _whole(engine: Engine) -> Engine:
    """For transactions that only read, all of it as it is at one moment."""
    if engine.dialect.name == "postgresql":
        return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return reading(engine)


def _write(connection: Connection, output: IO[str], name: str) -> Done:
    revision = schema.revision(connection, name)
    if revision is None:
        raise StoreError(f"{name}: has no tables of a controller")
    tables = MetaData()
    tables.reflect(connection)
    now = datetime.now(timezone.utc)
    output.write(json.dumps({"format": FORMAT, "revision": revision, "at": now.isoformat()}) + "\n")
    rows: Counter[str] = Counter()
    for table in tables.sorted_tables:
        if table.name in _NOT_KEPT:
            continue
        ordered = select(table).order_by(*table.primary_key.columns)
        for row in connection.execution_options(yield_per=_BATCH).execute(ordered).mappings():
            content = {key: _encoded(value) for key, value in row.items()}
            output.write(json.dumps([table.name, content], ensure_ascii=False) + "\n")
            rows[table.name] += 1
    return Done(revision, now, rows)


def _encoded(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):  # SQLite's have no zone: they are UTC
        return (value if value.tzinfo else value.replace(tzinfo=timezone.utc)).isoformat()
    return value


def _decoded(column: "Column[Any]", value: Any) -> Any:
    """Raises ValueError or TypeError."""
    if value is not None and isinstance(column.type, LargeBinary):
        return base64.b64decode(value, validate=True)
    if value is not None and isinstance(column.type, DateTime):
        return datetime.fromisoformat(value).astimezone(timezone.utc)
    return value


def _clear(connection: Connection, name: str, *, replace: bool) -> tuple[int, int, int]:
    """Leaves no table. The last number of a leader, the last of a change, and the last of an event, that there were."""
    revision = schema.revision(connection, name)  # of a newer version: raises
    last = 0, 0, 0
    if revision is not None:
        with Session(connection) as session:
            columns = select(LeadershipRow.number, LeadershipRow.revision).with_for_update()
            number, change = session.execute(columns).one()
            last = number, change, session.scalar(select(func.max(EventRow.id))) or 0
            if (leader := lease.leader(session)).until > 0:
                raise StoreError(f"{name}: {leader.name} leads; stop all its controllers first")
            if lease.accompanied(session, ""):
                raise StoreError(f"{name}: a controller stands by; stop all its controllers first")
        there = Base.metadata.tables.keys() & set(inspect(connection).get_table_names()) - _NOT_KEPT - _ALWAYS
        held = [
            it for it in sorted(there) if connection.execute(select(text("1")).select_from(text(it)).limit(1)).first()
        ]
        if held and not replace:
            raise StoreError(
                f"{name}: is not empty, it has {', '.join(held)}; --replace puts the backup in their place"
            )
    Base.metadata.drop_all(connection)
    connection.execute(text("DROP TABLE IF EXISTS alembic_version"))
    return last


def _read(connection: Connection, file: Path, lines: Iterator[tuple[int, Any]]) -> Counter[str]:
    """Fills the tables, which are those of the file's revision."""
    tables = MetaData()
    tables.reflect(connection)
    known = {name: table for name, table in tables.tables.items() if name not in _NOT_KEPT}
    for table in known.values():
        connection.execute(table.delete())
    rows: Counter[str] = Counter()
    batch: list[dict[str, Any]] = []
    of: Table | None = None
    for number, line in lines:
        table, row = _row(file, number, line, known)
        if of is not None and batch and (table is not of or len(batch) == _BATCH):
            connection.execute(of.insert(), batch)
            batch = []
        of = table
        batch.append(row)
        rows[table.name] += 1
    if of is not None and batch:
        connection.execute(of.insert(), batch)
    return rows


def _row(file: Path, number: int, line: Any, known: Mapping[str, Table]) -> tuple[Table, dict[str, Any]]:
    match line:
        case [str(name), {**content}] if name in known:
            table = known[name]
        case _:
            raise BackupError(str(file), "", "is no row of a table that this store has", number)
    if content.keys() != set(table.columns.keys()):
        raise BackupError(str(file), name, f"must have the columns {', '.join(table.columns.keys())}", number)
    try:
        return table, {key: _decoded(table.columns[key], value) for key, value in content.items()}
    except (ValueError, TypeError):
        raise BackupError(str(file), name, "has a value that its column can't have", number) from None


def _count_on(connection: Connection, file: Path, last: tuple[int, int, int], at: datetime) -> None:
    """Nobody leads, and whoever will has a greater number than any before, also of those that nobody knows of any more:
    that led after the backup. The same for changes, so that no version of a job is given twice, and for events."""
    least = int(time.time() * COUNT_SECONDS)
    with Session(connection) as session:
        row = session.get(LeadershipRow, 1)
        if row is None:
            raise BackupError(str(file), "", "does not say who led: it is no whole backup")
        numbers = max(row.number, last[0], least), max(row.revision, last[1], least)
        event = max(session.scalar(select(func.max(EventRow.id))) or 0, last[2]) + 1
        row.number, row.revision = numbers
        row.holder, row.name, row.expires, row.clock = None, "", 0.0, ""
        now = datetime.now(timezone.utc)
        said = f"the store was restored from a backup of {at:%Y-%m-%d %H:%M:%S} UTC"
        session.add(EventRow(id=event, at=now, controller="", kind="restore", subject="store", text=said, data={}))
        session.flush()
        if connection.dialect.name == "postgresql":
            session.execute(select(func.setval(func.pg_get_serial_sequence("events", "id"), event)))
        session.commit()
