# SPDX-License-Identifier: Apache-2.0
"""A few seconds of `make soak`."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import needs, needs_root

SECONDS = 8

pytestmark = [
    pytest.mark.alone,
    needs_root,
    needs("ip", "ethtool"),
]


def test_at_full_load_with_everything_changing_every_frame_is_accounted_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench.switch.soak", "--seconds", str(SECONDS), "--json", "--out", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as soak:
        try:
            output, errors = soak.communicate(timeout=300)
        finally:
            soak.terminate()  # so that it takes down what it has built, if it is too slow
    assert soak.returncode == 0, output + errors
    [report] = json.loads(output)["runs"]
    assert report["failures"] == []
    assert min(report[key] for key in ("received", "socket_drops", "entry_updates", "port_changes")) > 0
    assert {"program", "no_port", "tail_dropped", "tx_down"} <= report["drops"].keys()
