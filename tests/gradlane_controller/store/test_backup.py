# SPDX-License-Identifier: Apache-2.0
"""Backup and restore of stores of both databases: whole, at one moment, all or nothing, and never back in number."""

import gzip
import json
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from psycopg import Cursor
from sqlalchemy import Boolean, Engine, Float, Integer, LargeBinary, String, Table, event, select, text

from gradlane_controller.errors import StoreError
from gradlane_controller.store import Store, events, jobs, lease, schema
from gradlane_controller.store.backup import BackupError, backup, restore
from gradlane_controller.store.models import Base
from tests.gradlane_controller.store.conftest import at_work
from tests.support.postgresql import Postgresql

Contents = dict[str, list[tuple[Any, ...]]]
DATA = {"text": "Grüße \n\"'", "list": [1, 2.5, None, {"b64": "x"}]}


@pytest.fixture(params=["sqlite", "postgresql"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Another store, of either database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/other.db"
    return request.getfixturevalue("server").make_database()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.backup"


def made_up(table: Table, row: int) -> dict[str, Any]:
    """A row with something in every column; in even rows with nothing where that may be."""
    found: dict[str, Any] = {}
    for place, column in enumerate(table.columns, 1):
        match column.type:
            case _ if column.nullable and row % 2 == 0:
                found[column.name] = None
            case LargeBinary():
                found[column.name] = bytes([row, 0, 255, place])
            case Boolean():
                found[column.name] = bool((row + place) % 2)
            case Integer():
                found[column.name] = (1 << 30) + 100 * place + row
            case Float():
                found[column.name] = 1.5 * row
            case String():
                found[column.name] = f"ü {row} {place}"[: column.type.length]
            case _ if "DATETIME" in str(column.type):
                found[column.name] = datetime(2026, 1, 2, 3, row // 60, row % 60, 567_000 + place, timezone.utc)
            case _:
                found[column.name] = {**DATA, "row": row}
    return found


def fill(url: str, rows: int = 3) -> None:
    """Every table, but for who leads, and who stands by."""
    with at_work(url) as connection:
        for table in Base.metadata.sorted_tables:
            if table.name not in ("leadership", "controllers"):
                connection.execute(table.insert(), [made_up(table, row) for row in range(1, rows + 1)])


def contents(url: str) -> Contents:
    """All rows that are restored, by table, without what a restore adds itself."""
    with at_work(url) as connection:
        found = {
            table.name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
            for table in Base.metadata.sorted_tables
            if table.name not in ("leadership", "controllers")
        }
    kind = list(Base.metadata.tables["events"].columns.keys()).index("kind")
    found["events"] = [row for row in found["events"] if row[kind] != "restore"]
    return found


def lead(store: Store, times: int = 1) -> int:
    """The number of the last of so many leaders, who has given up."""
    number = None
    for _ in range(times):
        number = store.update(lease.acquire, "a", "leader", 60.0)
        assert number is not None
        store.renew(lease.release, "a", number)
    assert number is not None
    return number


def put(store: Store, name: str, content: str = "text") -> int:
    """The version of a job that a leader puts, who then gives up."""
    number = store.update(lease.acquire, "a", "leader", 60.0)
    assert number is not None
    version = store.write(jobs.put, number, name, content)
    store.renew(lease.release, "a", number)
    return version


def test_a_restored_store_has_every_row_of_every_table_in_either_database(
    store: Store, url: str, other: str, file: Path
) -> None:
    fill(url, rows=150)
    store.close()
    before = contents(url)
    assert set(before) == set(Base.metadata.tables) - {"leadership", "controllers"}
    done = backup(url, file)
    assert done.rows == {**dict.fromkeys(before, 150), "leadership": 1}
    assert restore(other, file, replace=False).rows == done.rows
    assert contents(other) == before == contents(url)


def test_a_backup_is_for_its_owner_alone_and_replaces_nothing(store: Store, url: str, file: Path) -> None:
    before = os.umask(0)
    try:
        backup(url, file)
    finally:
        os.umask(before)
    assert file.stat().st_mode & 0o777 == 0o600
    written = file.read_bytes()
    with pytest.raises(BackupError, match=r"store\.backup: is there already; name a new file"):
        backup(url, file)
    assert file.read_bytes() == written
    with pytest.raises(BackupError, match="/none/file: can't be written: No such file or directory"):
        backup(url, Path("/none/file"))
    assert [it.name for it in file.parent.iterdir() if "backup" in it.name] == [file.name]


def test_a_backup_is_of_one_moment(store: Store, url: str, file: Path) -> None:
    first = put(store, "a", "before")
    moved: list[int] = []

    def interfere(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "FROM events" in statement and not moved:  # it has begun, and jobs come later
            moved.append(0)
            moved[0] = put(store, "a", "after")

    event.listen(Engine, "before_cursor_execute", interfere)
    try:
        backup(url, file)
    finally:
        event.remove(Engine, "before_cursor_execute", interfere)
    assert moved[0] > first  # who wrote did not have to wait
    with gzip.open(file, "rt") as lines:
        rows = [json.loads(line) for line in lines][1:]
    (job,) = [row for table, row in rows if table == "jobs"]
    (leadership,) = [row for table, row in rows if table == "leadership"]
    assert (job["text"], job["version"], leadership["revision"]) == ("before", first, first)


def test_who_pauses_for_longer_than_a_controller_may_still_writes_and_reads_one(
    server: Postgresql, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between any two statements, from the connection's first one on."""
    url, execute = server.make_database(), Cursor.execute
    store = Store.open(url)
    put(store, "a")
    store.close()

    def execute_and_pause(self: "Cursor[Any]", *args: Any, **options: Any) -> "Cursor[Any]":
        done = execute(self, *args, **options)
        time.sleep(0.02)
        return done

    monkeypatch.setattr(Cursor, "execute", execute_and_pause)
    monkeypatch.setattr("gradlane_controller.store.engine.WAIT_SECONDS", 0.005)
    backup(url, file)
    restore(url, file, replace=True)
    monkeypatch.undo()
    assert [it[0] for it in contents(url)["jobs"]] == ["a"]


def test_nothing_is_restored_while_a_controller_leads_or_stands_by(store: Store, url: str, file: Path) -> None:
    put(store, "a")
    backup(url, file)
    number = store.update(lease.acquire, "b", "first", 60.0)
    assert number is not None
    with pytest.raises(StoreError, match="first leads; stop all its controllers first"):
        restore(url, file, replace=True)
    store.renew(lease.release, "b", number)
    store.renew(lease.stand_by, "c", "second", 4)
    with pytest.raises(StoreError, match="a controller stands by; stop all its controllers first"):
        restore(url, file, replace=True)
    assert store.read(lease.leader).number == number
    store.update(lambda session: session.execute(text("UPDATE controllers SET seen = seen - 60")))
    restore(url, file, replace=True)


def test_what_a_store_has_is_replaced_only_if_that_is_said(store: Store, url: str, other: str, file: Path) -> None:
    fill(url)
    store.close()
    backup(url, file)
    target = Store.open(other)
    put(target, "mine")
    with pytest.raises(StoreError, match="is not empty, it has jobs; --replace puts the backup in their place"):
        restore(other, file, replace=False)
    assert [it.name for it in target.jobs()] == ["mine"]
    target.close()
    restore(other, file, replace=True)
    assert contents(other) == contents(url)


def rewritten(file: Path, change: Callable[[list[Any]], None]) -> None:
    """The backup with other lines."""
    with gzip.open(file, "rt") as old:
        lines = [json.loads(line) for line in old]
    change(lines)
    with gzip.open(file, "wt") as new:
        new.writelines(json.dumps(line) + "\n" for line in lines)


def another_of_the_last(lines: list[Any]) -> None:
    lines.append(lines[-1])


BAD: list[tuple[Callable[[list[Any]], Any], str]] = [
    (lambda lines: lines.append(["nothing", {}]), "is no row of a table that this store has"),
    (lambda lines: lines.append(["alembic_version", {"version_num": "0001"}]), "is no row of a table"),
    (lambda lines: lines.append("row"), "is no row of a table"),
    (lambda lines: lines[-1][1].pop("host"), "tokens: must have the columns id, name, "),
    (lambda lines: lines[-1][1].update(more=1), "tokens: must have the columns id, name, "),
    (lambda lines: lines[-1][1].update(digest="?"), "tokens: has a value that its column can't have"),
    (lambda lines: lines[-1][1].update(digest=5), "tokens: has a value that its column can't have"),
    (lambda lines: lines[-1][1].update(created="yesterday"), "tokens: has a value that its column can't have"),
    (lambda lines: lines[-1][1].update(name=None), "(?i)null"),
    (another_of_the_last, "(?i)unique"),
    (lambda lines: lines.__delitem__(slice(1, None)), "does not say who led: it is no whole backup"),
    (lambda lines: lines[0].update(revision="9999"), "revision: is of a newer version"),
    (lambda lines: lines[0].update(format="other"), "is no backup of a controller's store"),
    (lambda lines: lines[0].update(at="now"), "at: must be a time in ISO 8601"),
    (lambda lines: lines.clear(), "is no backup of a controller's store"),
]


def test_a_bad_file_changes_nothing(store: Store, url: str, file: Path) -> None:
    fill(url)
    backup(url, file)
    rewritten(file, lambda lines: lines.sort(key=lambda it: isinstance(it, list) and it[0] == "tokens"))  # come last
    put(store, "mine")
    before, leader, good = contents(url), store.read(lease.leader), file.read_bytes()
    for change, reason in BAD:
        file.write_bytes(good)
        rewritten(file, change)
        with pytest.raises((BackupError, StoreError), match=reason) as caught:
            restore(url, file, replace=True)
        if isinstance(caught.value, BackupError):
            assert str(caught.value).startswith(str(file))
    assert contents(url) == before
    assert store.read(lease.leader) == leader


def test_a_file_that_is_cut_off_or_damaged_anywhere_changes_nothing(store: Store, url: str, file: Path) -> None:
    fill(url)
    backup(url, file)
    whole = file.read_bytes()
    put(store, "mine")
    before = contents(url)
    damaged = [whole[:-1], whole[: len(whole) // 2], whole[:20], whole[:-6] + b"\0" + whole[-5:], b"", b"no gzip"]
    damaged += [gzip.compress(b"[" * 100_000 + b"\n"), gzip.compress(b"\xff\n"), gzip.compress(b"{}")]
    for content in damaged:
        file.write_bytes(content)
        with pytest.raises(BackupError, match=str(file)):
            restore(url, file, replace=True)
    assert contents(url) == before
    with pytest.raises(BackupError, match="/none: can't be read: No such file"):
        restore(url, Path("/none"), replace=True)


def test_no_number_of_a_leader_or_version_of_a_job_is_given_twice(
    store: Store, url: str, other: str, file: Path, tmp_path: Path
) -> None:
    version = put(store, "a", "1")
    backup(url, file)
    # What is done after the backup is lost with the store.
    lost = [put(store, "a", "2"), lead(store, times=5)]
    # A new store, which knows nothing of that: twice, as the first one is lost, too.
    for target in (other, f"sqlite:///{tmp_path}/third.db"):
        began = time.time()
        restore(target, file, replace=False)
        again = Store.open(target)
        (job,) = again.jobs()
        assert (job.text, job.version) == ("1", version)
        numbers = [put(again, "a", "3"), lead(again, times=5)]
        assert min(numbers) > max(lost)
        assert min(numbers) > 1024 * began  # as many as there can have been since 1970
        lost += numbers
        again.close()


def test_numbers_go_on_from_those_of_the_store_that_is_replaced(store: Store, url: str, file: Path) -> None:
    put(store, "a")
    backup(url, file)
    far = 1 << 60
    store.update(lambda session: session.execute(text(f"UPDATE leadership SET number = {far}, revision = {far}")))
    restore(url, file, replace=True)
    assert put(store, "b") > far
    assert lead(store) > far


def test_events_go_on_from_the_last_one_that_anybody_has_seen(store: Store, url: str, other: str, file: Path) -> None:
    def add(to: Store, count: int) -> list[int]:
        now = datetime.now(timezone.utc)
        row = {"at": now, "controller": "c", "kind": "job", "subject": "s", "text": "t", "data": {}}
        to.write(events.add, [row] * count)
        return [it.id for it in to.read(events.newest, 100)]

    add(store, 2)
    backup(url, file)
    seen = max(add(store, 3))
    restore(url, file, replace=True)
    first, second, restored = store.read(events.newest, 100)
    assert (first.id, second.id) == (1, 2)
    assert restored.id == seen + 1
    assert "restored from a backup of 20" in restored.text
    assert add(store, 1)[-1] == seen + 2
    restore(other, file, replace=False)
    new = Store.open(other)
    assert add(new, 1) == [1, 2, 3, 4]
    new.close()


def test_a_store_of_an_older_version_is_written_as_it_is_and_brought_up_to_date_when_it_is_restored(
    url: str, other: str, file: Path
) -> None:
    with at_work(url) as connection:
        command.upgrade(schema.configuration(connection), "0004")
        connection.execute(
            text("INSERT INTO tokens (id, name, scope, digest, created) VALUES ('i', 'n', 3, :digest, :created)"),
            {"digest": b"\0" * 32, "created": datetime.now(timezone.utc) - timedelta(days=1)},
        )
    assert backup(url, file).revision == "0004"
    with at_work(url) as connection:
        assert schema.revision(connection, "") == "0004"  # whose controller goes on with it
    assert restore(other, file, replace=False).rows == {"tokens": 1, "leadership": 1}
    (token,) = contents(other)["tokens"]
    assert (token[0], token[1], token[3], token[-1]) == ("i", "n", b"\0" * 32, None)


def test_a_store_that_is_not_there_is_named_and_not_made(tmp_path: Path, server, file: Path) -> None:
    with pytest.raises(StoreError, match=r"none.db: there is no such file"):
        backup(f"sqlite:///{tmp_path}/none.db", file)
    with pytest.raises(StoreError, match="has no tables of a controller"):
        backup(server.make_database(), file)
    assert list(tmp_path.iterdir()) == []
