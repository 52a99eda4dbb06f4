# SPDX-License-Identifier: Apache-2.0
"""The handler for XLA's custom calls, without XLA; with it: tests/frameworks."""

import subprocess
from pathlib import Path

from tests.gradlane.core.core_programs import HERE, build


def test_it_takes_xlas_calls_of_known_versions_and_no_arrays_but_those_that_are_meant(tmp_path: Path) -> None:
    subprocess.run([build(tmp_path, [HERE / "xla_calls.c"])], check=True)
