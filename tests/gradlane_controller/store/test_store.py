# SPDX-License-Identifier: Apache-2.0
"""The store on both databases: jobs, the lease, its tables' history, and what goes wrong."""

import asyncio
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import text

from gradlane_controller.errors import ChangedMeanwhileError, StoreError
from gradlane_controller.store import Store, events, jobs, lease, schema
from gradlane_controller.store.engine import LOG_BYTES
from tests.gradlane_controller.store.conftest import at_work, fill, row
from tests.support.needs import needs_root
from tests.support.postgresql import Postgresql


def lead(store: Store, holder: str = "a", seconds: float = 60.0) -> int:
    number = store.update(lease.acquire, holder, f"name of {holder}", seconds)
    assert number is not None
    return number


def names(store: Store) -> dict[str, str]:
    return {it.name: it.text for it in store.jobs()}


def test_jobs_are_there_for_whoever_opens_it_next(store: Store, url: str) -> None:
    number = lead(store)
    first = store.write(jobs.put, number, "b", "text of b")
    second = store.write(jobs.put, number, "a", "text of a")
    assert 0 < first < second
    store.close()
    again = Store.open(url)
    assert [(it.name, it.text, it.version) for it in again.jobs()] == [
        ("a", "text of a", second),
        ("b", "text of b", first),
    ]
    (stored, _) = again.jobs()
    assert stored.created_at == stored.updated_at
    assert abs(datetime.now(timezone.utc) - stored.created_at) < timedelta(minutes=1)
    third = again.write(jobs.put, number, "a", "another")
    assert third > second
    again.write(jobs.remove, number, "b")
    again.write(jobs.remove, number, "none")
    (stored,) = again.jobs()
    assert (stored.text, stored.version) == ("another", third)
    assert stored.updated_at > stored.created_at
    again.close()


def test_who_has_read_another_version_changes_nothing(store: Store) -> None:
    number = lead(store)
    version = store.write(jobs.put, number, "a", "1", jobs.ABSENT)
    for refused in (version + 1, version - 1, jobs.ABSENT):
        with pytest.raises(ChangedMeanwhileError, match="'a' was changed meanwhile"):
            store.write(jobs.put, number, "a", "2", refused)
        with pytest.raises(ChangedMeanwhileError):
            store.write(jobs.remove, number, "a", refused)
    assert names(store) == {"a": "1"}
    store.write(jobs.remove, number, "a", version)
    # It is another state of the job, although it has the same text.
    assert store.write(jobs.put, number, "a", "1", jobs.ABSENT) > version


def test_only_the_leader_changes_jobs(store: Store) -> None:
    number = lead(store)
    store.write(jobs.put, number, "a", "1")
    store.renew(lease.release, "a", number)
    with pytest.raises(StoreError, match="another controller leads meanwhile"):
        store.write(jobs.put, number, "a", "2")
    assert lead(store, "b") == number + 1
    for change in (lambda: store.write(jobs.put, number, "b", "2"), lambda: store.write(jobs.remove, number, "a")):
        with pytest.raises(StoreError, match="another controller leads meanwhile"):
            change()
    assert names(store) == {"a": "1"}


def test_a_rehearsal_changes_nothing_and_finds_what_is_in_the_way(store: Store) -> None:
    number = lead(store)
    store.rehearse(jobs.put, number, "a", "1")
    assert names(store) == {}
    with pytest.raises(StoreError, match="another controller leads"):
        store.rehearse(jobs.put, number + 1, "a", "1")
    with pytest.raises(ChangedMeanwhileError):
        store.rehearse(jobs.put, number, "a", "1", 7)


def test_one_leads_at_a_time_and_numbers_only_grow(store: Store) -> None:
    number = lead(store, "a", 60.0)
    assert store.update(lease.acquire, "b", "B", 60.0) is None
    assert store.update(lease.acquire, "a", "A", 60.0) is None, "not even itself, without having given it up"
    assert store.renew(lease.renew, "a", number, 60.0)
    assert not store.renew(lease.renew, "b", number, 60.0)
    assert not store.renew(lease.renew, "a", number + 1, 60.0)
    found = store.read(lease.leader)
    assert (found.name, found.number) == ("name of a", number)
    assert 50 < found.until <= 60
    store.renew(lease.release, "b", number)
    store.renew(lease.release, "a", number - 1)
    assert store.update(lease.acquire, "b", "B", 60.0) is None
    store.renew(lease.release, "a", number)
    assert store.read(lease.leader).until <= 0
    assert not store.renew(lease.renew, "a", number, 60.0)
    assert store.update(lease.acquire, "b", "B", 60.0) == number + 1


def test_a_lease_ends_by_itself(store: Store) -> None:
    number = lead(store, "a", 0.2)
    time.sleep(0.3)
    assert not store.renew(lease.renew, "a", number, 60.0)
    assert store.update(lease.outgrow, "a", number, 60.0, 99) is None
    assert store.update(lease.acquire, "b", "B", 60.0) == number + 1


def test_a_lease_of_another_boot_is_none(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/store.db")
    number = lead(store, "a", 1e9)
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE leadership SET clock = 'another boot'"))
    assert store.read(lease.leader).until <= 0
    assert not store.renew(lease.renew, "a", number, 1.0)
    assert store.update(lease.acquire, "b", "B", 1.0) == number + 1
    store.close()


def test_a_number_outgrows_what_a_switch_has_seen(store: Store) -> None:
    number = lead(store)
    assert store.update(lease.outgrow, "b", number, 60.0, 50) is None
    assert store.update(lease.outgrow, "a", number, 60.0, 50) == 50
    assert store.update(lease.outgrow, "a", 50, 60.0, 7) == 51, "it never shrinks, and never stays"
    assert not store.renew(lease.renew, "a", number, 60.0)
    assert store.renew(lease.renew, "a", 51, 60.0)


def test_of_many_that_want_to_lead_at_once_one_does(store: Store, url: str) -> None:
    found: list[int | None] = []
    problems: list[str] = []
    others = [Store(url) for _ in range(4)]
    barrier = threading.Barrier(4)

    def run(number: int) -> None:
        barrier.wait()
        for _ in range(5):
            try:
                found.append(others[number].update(lease.acquire, f"holder {number}", "", 60.0))
            except StoreError as problem:  # it waits a second for a lock, on a busy machine
                problems.append(str(problem))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [it for it in found if it is not None] == [1]
    assert [it for it in problems if "lock" not in it] == []
    for other in others:
        other.close()


def test_those_who_stand_by_say_whom_they_reach(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.read(lease.most_reach, "a") == 0
    for holder, reach in (("a", 9), ("b", 3), ("c", 5), ("c", 4)):
        store.write(lease.stand_by, holder, holder, reach)
    assert store.read(lease.most_reach, "a") == 4
    monkeypatch.setattr(lease, "PRESENT_SECONDS", 0.2)
    time.sleep(0.3)
    assert store.read(lease.most_reach, "a") == 0
    store.write(lease.stand_by, "d", "d", 1)
    with store.engine.connect() as connection:
        assert connection.execute(text("SELECT holder FROM controllers")).scalars().all() == ["d"]


def test_models_and_migrations_make_the_same_tables(store: Store, url: str) -> None:
    with at_work(url) as connection:
        command.check(schema.configuration(connection))


def test_a_store_of_the_first_version_is_brought_up_to_date(url: str) -> None:
    old = Store(url)
    with at_work(url) as connection:
        command.upgrade(schema.configuration(connection), "0001")
    number = lead(old)
    old.write(jobs.put, number, "a", "text")
    old.close()
    store = Store.open(url)
    assert names(store) == {"a": "text"}
    with at_work(url) as connection:
        command.check(schema.configuration(connection))
    store.close()


def test_many_may_open_a_new_store_at_once(url: str) -> None:
    barrier = threading.Barrier(4)
    problems: list[BaseException] = []

    def run() -> None:
        barrier.wait()
        try:
            Store.open(url).close()
        except StoreError as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [it for it in problems if "lock" not in str(it)] == []
    store = Store.open(url)
    assert names(store) == {}
    store.close()


def test_a_store_of_a_newer_version_is_named_and_left_alone(store: Store, url: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"is of a newer version \(9999; .*use a newer gradlane-controller") as caught:
        Store.open(url)
    assert store.name in str(caught.value)
    with store.engine.begin() as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "9999"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("what", "this is no URL"),
        ("mysql://me:secret@there/db", "store mysql://me:***@there/db: the store must be sqlite:///FILE or postgresql"),
        ("sqlite://", "the store must be sqlite:///FILE"),
        ("sqlite:////none/such/file.db", "store sqlite:////none/such/file.db: can't be written: No such file"),
        ("postgresql://me:secret@127.0.0.1:9/db", "store postgresql+psycopg://me:***@127.0.0.1:9/db: "),
        ("postgresql+psycopg://me@127.0.0.1:9/db?password=secret", "password=hidden: "),
    ],
)
def test_a_store_that_can_not_be_opened_is_named_without_its_password(url: str, reason: str) -> None:
    begun = time.monotonic()
    with pytest.raises(StoreError) as caught:
        Store.open(url)
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < 10


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_text("what is this" * 100)
    with pytest.raises(StoreError, match="file is not a database; name another file"):
        Store.open(f"sqlite:///{tmp_path}/store.db")


def test_only_its_owner_may_read_the_file(tmp_path: Path) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/store.db")
    lead(store)
    assert {it.name: it.stat().st_mode & 0o777 for it in tmp_path.iterdir()} == {
        f"store.db{suffix}": 0o600 for suffix in ("", "-wal", "-shm")
    }
    store.close()


def test_whoever_holds_the_lock_is_waited_for_and_not_longer(store: Store, url: str) -> None:
    number = lead(store)
    other = Store(url)
    with other.engine.begin() as connection:
        if connection.dialect.name == "postgresql":  # which else would end this transaction after a second
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        connection.execute(text("UPDATE leadership SET revision = revision + 1"))
        begun = time.monotonic()
        with pytest.raises(StoreError, match="lock"):
            store.write(jobs.put, number, "a", "text")
        assert 0.5 < time.monotonic() - begun < 10
        assert names(store) == {}, "who reads does not wait"
    store.write(jobs.put, number, "a", "text")
    other.close()


def test_what_hangs_ends_with_an_error_and_the_loop_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradlane_controller.store.database.ANSWER_SECONDS", 0.3)
    release = threading.Event()

    async def run() -> int:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.01)
                turns += 1

        task = asyncio.create_task(turn())
        with pytest.raises(StoreError, match=r"no answer in 0\.3 s") as caught:
            await store.run(store.read, lambda _session: release.wait(20))
        assert caught.value.unsure
        task.cancel()
        return turns

    assert asyncio.run(run()) > 5
    release.set()


@needs_root
def test_a_full_disk_stops_jobs_and_events_but_not_the_lease(small_disk: Path) -> None:
    store = Store.open(f"sqlite:///{small_disk}/store.db")
    number = lead(store)
    store.write(jobs.put, number, "a", "text")
    fill(small_disk)
    with pytest.raises(StoreError, match="less than 4 MiB are left on its disk; make room"):
        store.write(jobs.put, number, "b", "text")
    with pytest.raises(StoreError, match="less than 4 MiB"):
        store.rehearse(jobs.put, number, "b", "text")
    with pytest.raises(StoreError, match="less than 4 MiB"):
        store.append(events.add, [row(1)])
    # Far more often than the log could take, if it did not begin anew.
    for _ in range(2 * LOG_BYTES // 4096):
        assert store.renew(lease.renew, "a", number, 60.0)
    store.renew(lease.release, "a", number)
    number = lead(store, "b")
    assert names(store) == {"a": "text"}
    (small_disk / "filler").unlink()
    store.write(jobs.put, number, "b", "text")
    store.close()


@needs_root
def test_a_disk_that_fills_up_in_the_middle_of_a_write_is_survived(small_disk: Path) -> None:
    """Nobody looks before; what does not fit is not there afterwards, and the lease goes on."""
    store = Store.open(f"sqlite:///{small_disk}/store.db")
    number = lead(store)
    fill(small_disk)
    with pytest.raises(StoreError, match="disk is full; make room on its disk"):
        store.update(jobs.put, number, "big", "x" * (2 * LOG_BYTES))
    for _ in range(100):
        assert store.renew(lease.renew, "a", number, 60.0)
    assert names(store) == {}
    store.close()


def test_a_server_that_was_started_anew_is_found_again(server: Postgresql) -> None:
    store = Store.open(server.make_database())
    number = lead(store)
    store.write(jobs.put, number, "a", "text")
    server.stop()
    with pytest.raises(StoreError, match=f"127.0.0.1:{server.port}"):
        store.jobs()
    server.start()
    assert names(store) == {"a": "text"}
    assert store.renew(lease.renew, "a", number, 60.0)
    store.close()
