# SPDX-License-Identifier: Apache-2.0
"""Stores of both databases, empty for each test, and a disk that can be filled."""

import contextlib
import os
import subprocess
from collections.abc import Generator, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from sqlalchemy import Connection

from gradlane_controller.store import Store
from gradlane_controller.store.engine import connect, parse
from tests.support.postgresql import BIN, Postgresql


@pytest.fixture(scope="session")
def server() -> Iterator[Postgresql]:
    if not (BIN / "initdb").exists():
        pytest.skip("Debian's postgresql (15) is not installed")
    it = Postgresql()
    try:
        it.start()
        yield it
    finally:
        it.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue("server").make_database()


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    it = Store.open(url)
    yield it
    it.close()


@contextlib.contextmanager
def at_work(url: str) -> Generator[Connection]:
    """A transaction in which a busy machine may pause for longer than in those of a controller."""
    engine = connect(parse(url), longer=True)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", folder], check=True)
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """To the last byte."""
    with (folder / "filler").open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    assert os.statvfs(folder).f_bavail == 0


def row(number: int, at: datetime | None = None, kind: str = "link") -> dict[str, object]:
    """An event as it is written."""
    moment = at or datetime.now(timezone.utc)
    common = {"at": moment, "controller": "c", "kind": kind, "subject": "s", "data": {"number": number}}
    return {**common, "text": f"text {number}"}
