# SPDX-License-Identifier: Apache-2.0
"""What holds for every test."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import effort

# Files that take longest, the longest first: side by side, no worker is left with one of them at the end.
_LONGEST = (
    "fuzz/test_fuzz.py",
    "lab/experiment/test_demo.py",
    "gradlane/core/protocol/test_model.py",
    "gradlane_controller/test_fabric_of_switches.py",
    "docs/test_tutorials.py",
    "gradlane/sync/test_networks.py",
    "gradlane/core/protocol/test_spraying.py",
    "gradlane/daemon/test_faults.py",
    "differential/test_differential.py",
    "gradlane/core/test_exhaustion.py",
    "gradlane/daemon/test_faults_in_flight.py",
    "gradlane_switch/native/test_tables.py",
    "gradlane/sums/test_summed_jobs.py",
    "gradlane_controller/test_run_of_sum_trees.py",
    "gradlane_switch/p4runtime/test_random_messages.py",
    "bench/test_study.py",
    "gradlane/torch/test_process_group.py",
    "bench/test_sync.py",
    "gradlane_controller/test_hostile_switch.py",
    "gradlane_switch/p4runtime/test_atomicity.py",
    "gradlane/torch/test_torchrun.py",
    "gradlane/control/test_security.py",
    "gradlane_controller/test_run_of_fabrics.py",
    "gradlane_controller/test_run.py",
    "gradlane/daemon/test_late_in_groups.py",
    "gradlane_controller/test_targets.py",
    "gradlane/sync/test_loss.py",
    "p4src/model/test_policy_model.py",
    "p4src/sums/test_random_sums.py",
    "gradlane/core/protocol/test_congestion.py",
    "bench/test_stopping.py",
    "page/test_views.py",
    "page/test_accessibility.py",
    "gradlane/daemon/test_leaving.py",
    "gradlane/control/test_joining.py",
    "gradlane/sync/test_asynchronous.py",
    "lab/net/test_network.py",
    "lab/training/test_worker.py",
    "gradlane/daemon/test_agents.py",
    "gradlane/core/protocol/test_engine.py",
)


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
    places = {Path(__file__).parent / name: place for place, name in enumerate(_LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
