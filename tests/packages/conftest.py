# SPDX-License-Identifier: Apache-2.0
"""What `make dist` has made. Without it these tests are skipped: `make test-dist` runs them."""

from pathlib import Path

import pytest

from tests.packages import environments
from tests.packages.environments import Environment


def _given(config: pytest.Config, option: str) -> Path:
    folder = config.getoption(option)
    if folder is None:
        pytest.skip("make test-dist runs it")
    return Path(folder).resolve()


@pytest.fixture(scope="session")
def packages(pytestconfig: pytest.Config) -> Path:
    return _given(pytestconfig, "--packages")


@pytest.fixture(scope="session")
def everything(pytestconfig: pytest.Config) -> Environment:
    """All three distributions."""
    return Environment(_given(pytestconfig, "--installed"))


@pytest.fixture(scope="session")
def agent(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """The agent without extras, as on a training host whose framework is the user's own."""
    (wheel,) = packages.glob("gradlane-*.whl")
    return environments.make(tmp_path_factory.mktemp("agent"), wheel)
