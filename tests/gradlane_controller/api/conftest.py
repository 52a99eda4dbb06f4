# SPDX-License-Identifier: Apache-2.0
"""One server for the tests of a file."""

from collections.abc import Iterator

import pytest

from tests.gradlane_controller.api.server import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    it = Server(tmp_path_factory.mktemp("server"))
    yield it
    it.close()
