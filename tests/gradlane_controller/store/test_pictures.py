# SPDX-License-Identifier: Apache-2.0
"""The pictures that a store keeps: which are found, and which are forgotten."""

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from gradlane_controller.errors import StoreError
from gradlane_controller.store import Store, pictures
from gradlane_controller.store.pictures import Kept
from tests.gradlane_controller.store.conftest import fill
from tests.support.needs import needs_root

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
ALL = timedelta(0)
PLENTY = 10**9


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def put(store: Store, *seconds: float, lasting: bool = False, size: int = 10, content: bytes = b"x") -> None:
    for it in seconds:
        store.append(pictures.add, Kept(at(it), lasting, size, content))


def found(
    store: Store, first: float, last: float, step: timedelta = ALL, most: int = 1000, most_bytes: int = PLENTY
) -> tuple[list[float], float | None]:
    """Seconds since noon."""
    kept, more = store.read(pictures.between, at(first), at(last), step, most, most_bytes)
    return [(it.at - NOON).total_seconds() for it in kept], more and (more - NOON).total_seconds()


def test_what_is_kept_is_found_as_it_was_also_by_who_opens_it_next(store: Store, url: str) -> None:
    first, second = Kept(at(0.125), True, 5, b"\0\xff"), Kept(at(5), False, 7, b"other")
    store.append(pictures.add, second)
    store.append(pictures.add, first)
    store.append(pictures.add, first)  # tried again, as nobody knew what had become of it
    store.close()
    again = Store.open(url)
    assert again.read(pictures.between, at(0), at(10), ALL, 1000, PLENTY) == ([first, second], None)
    again.close()


def test_the_first_one_is_that_of_the_beginning_if_it_is_not_too_old(store: Store) -> None:
    put(store, 0, 5, 10, 15, 400)
    assert found(store, 7, 12) == ([5, 10], None)
    assert found(store, 7, 7) == ([5], None)
    assert found(store, 5, 10) == ([5, 10], None)
    assert found(store, -5, 5) == ([0, 5], None)
    assert found(store, -5, -1) == ([], None)
    assert found(store, 15 + 119, 300) == ([15], None)
    assert found(store, 15 + 120, 300) == ([], None)
    assert found(store, 399, 500) == ([400], None)


def test_steps_are_the_same_wherever_one_begins_and_pages_go_on_where_they_ended(store: Store) -> None:
    put(store, *range(0, 100, 3))
    step = timedelta(seconds=10)
    expected = [0, 12, 21, 30, 42, 51, 60, 72, 81, 90]  # the first ones of each ten seconds
    assert found(store, 0, 1000, step) == (expected, None)
    assert found(store, 30, 1000, step) == (expected[3:], None)
    assert found(store, 0, 80, step) == (expected[:8], None)
    pages: list[float] = []
    following: float | None = 0
    while following is not None:
        some, following = found(store, following, 1000, step, most=3)
        assert len(some) <= 3
        pages += some
    assert pages == expected


def test_an_answer_is_bounded_in_bytes_but_has_one_at_least(store: Store) -> None:
    put(store, 0, 1, 2, 3, size=100)
    assert found(store, 0, 9, most_bytes=300) == ([0, 1, 2], 3)
    assert found(store, 0, 9, most_bytes=299) == ([0, 1], 2)
    assert found(store, 2, 9, most_bytes=1) == ([2], 3)
    assert found(store, 3, 9, most_bytes=1) == ([3], None)


def test_an_hour_is_kept_in_detail_and_a_day_by_the_minute(store: Store) -> None:
    hour, day = 3600, 24 * 3600
    put(store, -day - 1, -day + 1, -hour - 60, -hour + 60, lasting=True)
    put(store, -day + 2, -hour - 1, -hour + 1, -1)
    store.update(pictures.thin, NOON)
    kept = [it.at for it in store.read(pictures.between, at(-2 * day), NOON, ALL, 1000, PLENTY)[0]]
    assert kept == [at(it) for it in (-day + 1, -hour - 60, -hour + 1, -hour + 60, -1)]


def test_of_too_many_and_too_large_ones_the_oldest_go(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    put(store, *range(10), content=b"x" * 100)
    monkeypatch.setattr(pictures, "MOST", 7)
    store.update(pictures.thin, NOON)
    assert found(store, 0, 99)[0] == [3, 4, 5, 6, 7, 8, 9]
    monkeypatch.setattr(pictures, "MOST_BYTES", 500)
    store.update(pictures.thin, NOON)
    assert found(store, 0, 99)[0] == [5, 6, 7, 8, 9]
    monkeypatch.setattr(pictures, "MOST_BYTES", 499)
    store.update(pictures.thin, NOON)
    assert found(store, 0, 99)[0] == [6, 7, 8, 9]


@needs_root
def test_on_a_full_disk_none_is_kept_and_old_ones_can_be_forgotten(small_disk: Path) -> None:
    store = Store.open(f"sqlite:///{small_disk}/store.db")
    put(store, -3 * 24 * 3600, 0, content=b"x" * 30_000)
    fill(small_disk)
    with pytest.raises(StoreError, match="less than 4 MiB are left on its disk; make room"):
        put(store, 5)
    store.update(pictures.thin, NOON)
    assert found(store, -4 * 24 * 3600, 10)[0] == [0]
    store.close()
