# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import effort


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--thorough",
        action="store_true",
        help="5 times as many random inputs; on BMv2, where it is, the whole corpus and all packet tests",
    )
    parser.addoption("--p4-coverage", metavar="FILE", help="write what the packet tests reach of the P4 program")
    parser.addoption("--packages", metavar="FOLDER", type=Path, help="what `make dist` has made")
    parser.addoption("--installed", metavar="FOLDER", type=Path, help="an environment with these packages alone")
    parser.addoption("--site", metavar="FOLDER", type=Path, help="what `make docs` has made")
    parser.addoption("--site-python", metavar="FILE", type=Path, help="the Python that has made it")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--thorough"):
        effort.be_thorough()
    # How long an example takes says more about what else the machine does than about the code.
    settings.register_profile(
        "gradlane", deadline=None, max_examples=effort.tries(100), suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("gradlane")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
