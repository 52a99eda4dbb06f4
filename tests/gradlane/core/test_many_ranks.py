# SPDX-License-Identifier: Apache-2.0
"""What is looked for among ranks is found as if all of them were looked at, but they are not."""

import subprocess
from pathlib import Path

import pytest

from tests.gradlane.core.core_programs import HERE, build


@pytest.mark.parametrize("program", ["lanes", "streams", "controls"])
def test_ranks_are_found_as_by_a_look_at_all(tmp_path: Path, program: str) -> None:
    wrapped = ["flow_due"] if program == "lanes" else []
    subprocess.run([build(tmp_path, [HERE / f"{program}.c"], *wrapped)], check=True, timeout=120)
