# SPDX-License-Identifier: Apache-2.0
"""Makes the helpers beside these tests importable, and finds the project's compiled program."""

import sys
from pathlib import Path

import pytest

from gradlane_switch import Switch

sys.path.insert(0, str(Path(__file__).parent))

BUILD = Path(__file__).parents[2] / "p4src" / "build" / "v1model"


@pytest.fixture(scope="session")
def program_json() -> Path:
    return BUILD / "gradlane.json"


@pytest.fixture(scope="session")
def program_p4info() -> Path:
    return BUILD / "gradlane.p4info.txtpb"


@pytest.fixture
def gradlane(program_json: Path, program_p4info: Path) -> Switch:
    return Switch.load(program_json, program_p4info)
