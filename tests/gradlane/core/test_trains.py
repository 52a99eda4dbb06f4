# SPDX-License-Identifier: Apache-2.0
"""What comes in trains, and is held where it lies, is reduced as what comes one by one; what is forged is refused."""

import subprocess
from pathlib import Path

from tests.gradlane.core.core_programs import HERE, build


def test_trains_in_few_buffers_give_exact_results(tmp_path: Path) -> None:
    subprocess.run([build(tmp_path, [HERE / "trains.c"])], check=True, timeout=120)
