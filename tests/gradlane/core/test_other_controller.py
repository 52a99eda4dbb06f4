# SPDX-License-Identifier: Apache-2.0
"""A congestion controller is a part that can be exchanged, and the rate is computed without the rest of the core."""

import subprocess
from pathlib import Path

from gradlane import wire

CORE = Path(__file__).parents[3] / "agent" / "src" / "gradlane" / "core"


def test_a_flow_goes_by_another_controller(tmp_path: Path) -> None:
    (tmp_path / "wire.h").write_text(wire.c_definitions())
    sources = [Path(__file__).with_name("other_controller.c"), *CORE.glob("base/*.c"), *CORE.glob("rate/*.c")]
    program = tmp_path / "other_controller"
    options = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined,address", "-I", CORE, "-I", tmp_path]
    subprocess.run(["cc", *options, *sources, "-o", program], check=True)
    subprocess.run([program], check=True)
