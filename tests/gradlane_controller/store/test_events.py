# SPDX-License-Identifier: Apache-2.0
"""The timeline in the store, on both databases."""

import threading
from datetime import datetime, timedelta, timezone

import pytest

from gradlane_controller.errors import StoreError
from gradlane_controller.store import Store, events
from tests.gradlane_controller.store.conftest import row


def test_the_timeline_is_in_order_and_goes_on(store: Store) -> None:
    store.append(events.add, [row(number) for number in range(5)])
    store.append(events.add, [row(5, kind="switch")])
    every = store.read(events.after, 0, 100)
    assert [it.data["number"] for it in every] == [0, 1, 2, 3, 4, 5]
    ids = [it.id for it in every]
    assert ids == sorted(set(ids))
    assert [it.text for it in store.read(events.after, ids[2], 2)] == ["text 3", "text 4"]
    assert [it.text for it in store.read(events.after, 0, 9, "switch")] == ["text 5"]
    assert [it.text for it in store.read(events.newest, 2)] == ["text 4", "text 5"]
    moment = datetime(2026, 1, 1, 12, 30, 0, 123456, timezone.utc)
    store.append(events.add, [row(7, moment)])
    (last,) = store.read(events.newest, 1)
    assert last.at == moment
    assert last.to_json()["at"] == "2026-01-01T12:30:00.123Z"


def test_the_timeline_is_thinned_by_number_and_age(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST", 3)
    old = datetime.now(timezone.utc) - events.LONGEST - timedelta(hours=1)
    store.append(events.add, [row(number) for number in range(5)] + [row(5, old)])
    last = store.read(events.newest, 1)[0].id
    store.update(events.thin)
    assert [it.data["number"] for it in store.read(events.after, 0, 100)] == [3, 4]
    store.append(events.add, [row(6)])
    assert store.read(events.newest, 1)[0].id > last, "an id is never used again"


def test_nobody_sees_an_entry_before_one_with_a_smaller_id(store: Store, url: str) -> None:
    """Two controllers write at the same time, and a reader goes on from the last that it has seen."""
    writers = [Store(url) for _ in range(2)]
    done = threading.Event()
    problems: list[str] = []

    def run(writer: Store) -> None:
        for number in range(40):
            try:
                writer.append(events.add, [row(number), row(number)])
            except StoreError as problem:
                problems.append(str(problem))

    threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
    for each in threads:
        each.start()
    seen: list[int] = []
    while any(each.is_alive() for each in threads) or not done.is_set():
        if not any(each.is_alive() for each in threads):
            done.set()
        seen += [it.id for it in store.read(events.after, seen[-1] if seen else 0, 1000)]
    assert seen == [it.id for it in store.read(events.after, 0, 1000)]
    assert len(seen) > 20
    assert [it for it in problems if "lock" not in it] == []
    for writer in writers:
        writer.close()
