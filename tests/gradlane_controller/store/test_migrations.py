# SPDX-License-Identifier: Apache-2.0
"""Migrations only add, so that controllers of the version before go on after one of the next has changed the tables."""

import re
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from gradlane_controller.errors import StoreError
from gradlane_controller.store import Store, jobs, lease, schema
from gradlane_controller.store.engine import parse
from gradlane_controller.store.models import Base


@pytest.fixture
def newer(store: Store) -> Store:
    """As `store`, which is open, after a newer version has added a column to each table, and a table."""
    with store.engine.begin() as connection:
        for name in Base.metadata.tables:
            connection.execute(text(f"ALTER TABLE {name} ADD COLUMN of_the_next_version TEXT"))
        connection.execute(text("CREATE TABLE of_the_next_version (id INTEGER PRIMARY KEY)"))
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    return store


def test_who_has_opened_a_store_goes_on_when_a_newer_version_adds_to_it(newer: Store) -> None:
    number = newer.update(lease.acquire, "a", "A", 60.0)
    assert number is not None
    version = newer.write(jobs.put, number, "job", "text")
    assert [(it.name, it.version) for it in newer.jobs()] == [("job", version)]
    row = {"at": datetime.now(timezone.utc), "controller": "c", "kind": "job", "subject": "s", "text": "t", "data": {}}
    with newer.engine.begin() as connection:
        connection.execute(Base.metadata.tables["events"].insert(), [row])
    assert newer.renew(lease.renew, "a", number, 60.0)


def test_who_opens_it_after_that_is_told_that_it_is_of_a_newer_version(newer: Store, url: str) -> None:
    with pytest.raises(StoreError, match="is of a newer version"):
        Store.open(url)


def test_every_migration_only_adds(tmp_path: Path) -> None:
    found = list[str]()

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        found.append(" ".join(statement.split()))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        schema.upgrade(parse(f"sqlite:///{tmp_path}/new.db"))
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    changes = [said for said in found if not re.match("SELECT|PRAGMA|BEGIN", said)]
    assert sum(said.startswith("CREATE TABLE") for said in changes) > 5
    table = r"(CREATE (UNIQUE )?(TABLE|INDEX) |INSERT INTO leadership |(UPDATE|INSERT INTO) alembic_version )"
    column = r"ALTER TABLE \w+ ADD COLUMN (?!.*NOT NULL)|ALTER TABLE \w+ ADD COLUMN .*DEFAULT"
    assert [said for said in changes if not re.match(f"{table}|{column}", said)] == []
