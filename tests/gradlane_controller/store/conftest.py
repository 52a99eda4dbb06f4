# SPDX-License-Identifier: Apache-2.0
"""Stores of both databases, empty for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gradlane_controller.store import Store
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
