# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside each test importable by their plain names; what holds for every test."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("gradlane", deadline=None)
settings.load_profile("gradlane")

for folder in ("protocol", "packet", "controller", "agent", "agent_ops"):
    sys.path.insert(0, str(Path(__file__).parent / folder))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-on-bmv2",
        action="store_true",
        help="run what takes long on BMv2 too: the whole corpus, the spine that fails",
    )
    parser.addoption("--p4-coverage", metavar="FILE", help="write what the packet tests reach of the P4 program")
