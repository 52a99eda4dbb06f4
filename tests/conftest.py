# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside each test importable by their plain names; what holds for every test."""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("gradlane", deadline=None)
settings.load_profile("gradlane")

# Files that take longest, the longest first: side by side, no worker is left with one of them at the end.
_LONGEST = (
    "fuzz/test_fuzz.py",
    "mininet_runner/test_demo.py",
    "torch/test_process_group.py",
    "mininet_runner/test_study.py",
    "differential/test_differential.py",
    "protocol/test_model.py",
    "agent/test_faults.py",
    "switch/test_atomicity.py",
    "controller/test_run.py",
    "controller/test_targets.py",
    "switch/test_random_messages.py",
    "mininet_runner/test_network.py",
    "training/test_worker.py",
    "agent/test_agents.py",
    "bench/test_stopping.py",
    "controller/test_run_of_fabrics.py",
    "agent/test_security.py",
    "protocol/test_engine.py",
)

for folder in ("protocol", "packet", "controller", "agent", "agent_ops", "bench"):
    sys.path.insert(0, str(Path(__file__).parent / folder))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-on-bmv2",
        action="store_true",
        help="run what takes long on BMv2 too: the whole corpus, the spine that fails",
    )
    parser.addoption("--p4-coverage", metavar="FILE", help="write what the packet tests reach of the P4 program")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
