# SPDX-License-Identifier: Apache-2.0
"""Ray Train on a cluster of two nodes, each in a network namespace. It needs root."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.ranks import PATIENCE, needs
from tests.frameworks.test_page import programs_of
from tests.support.namespaces import Namespaces, ip
from tests.support.needs import needs_root
from tests.support.paths import EXAMPLES

pytestmark = [needs("ray", "torch"), needs_root]

ADDRESSES = ("10.89.0.1", "10.89.0.2")
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1", "RAY_DEDUP_LOGS": "0"}


class Nodes(Namespaces):
    """Two, at the ends of a wire."""

    def __init__(self) -> None:
        super().__init__(*(f"gly{os.getpid()}-{number}" for number in range(2)))

    def _build(self) -> None:
        one, other = self.names
        ip("link", "add", "eth0", "netns", one, "type", "veth", "peer", "name", "eth0", "netns", other)
        for name, address in zip(self.names, ADDRESSES, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")

    def close(self) -> None:
        for name in self.names:  # what Ray has started
            found = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
            for pid in found.stdout.split():
                subprocess.run(["kill", "-9", pid], check=False, capture_output=True)
        super().close()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    """Its workers bring their agents."""
    environment = os.environ | QUIET | {"GRADLANE_SOCKET": "process"}
    folder = f"/tmp/gly{os.getpid()}"  # sockets' paths are short
    common = ["--num-cpus", "1", "--disable-usage-stats"]
    starts = [
        [*("--head", "--port", "6399", "--include-dashboard", "false", "--temp-dir", folder), *common],
        [*("--address", f"{ADDRESSES[0]}:6399"), *common],
    ]
    with Nodes() as nodes, contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        for name, address, start in zip(nodes.names, ADDRESSES, starts, strict=True):
            command = [Path(sys.executable).with_name("ray"), "start", *start, "--node-ip-address", address]
            subprocess.run(
                [*nodes.inside(name), *map(str, command)],
                env=environment,
                check=True,
                capture_output=True,
                timeout=PATIENCE,
            )
        yield nodes


def fit(nodes: Nodes, folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Runs it on the first node to its end."""
    (folder / "train.py").write_text(program)
    (folder / "examples").mkdir()
    (folder / "examples/template.toml").write_text((EXAMPLES / "template.toml").read_text())
    environment = os.environ | QUIET | {"RAY_ADDRESS": f"{ADDRESSES[0]}:6399"}
    command = [*nodes.inside(nodes.names[0]), sys.executable, "train.py"]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def test_workers_on_two_nodes_learn_the_same_model(cluster: Nodes, tmp_path: Path) -> None:
    done = fit(cluster, tmp_path, programs_of("ray")[0])
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    told = sorted(set(re.findall(r"rank (\d): loss ([0-9.]+), (\S+)", said)))
    assert [rank for rank, _, _ in told] == ["0", "1"], said
    assert all(float(loss) < 1.0 for _, loss, _ in told)
    assert told[0][2] == told[1][2], "the same model"
    assert len(set(re.findall(r"ip=(10\.89\.0\.\d), pid=\d+\) world_rank=", said))) == 2


def test_a_worker_that_dies_is_named_by_fit(cluster: Nodes, tmp_path: Path) -> None:
    died = "        if step == 20 and rank == 1:\n            __import__('os')._exit(9)\n        loss.backward()\n"
    done = fit(cluster, tmp_path, programs_of("ray")[0].replace("        loss.backward()\n", died))
    assert done.returncode != 0
    assert re.search(r"rank 1 \(\S+, 10\.89\.0\.\d\) is gone", done.stdout + done.stderr), done.stderr
