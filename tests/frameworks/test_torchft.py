# SPDX-License-Identifier: Apache-2.0
"""Under torchft the others train on without a replica group that dies, and with the one that comes in its place."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.frameworks.ranks import needs
from tests.frameworks.test_page import programs_of
from tests.support.agents import until
from tests.support.paths import EXAMPLES

pytestmark = needs("torchft")

# Goes on until the test has seen enough, and tells the model of each step.
ENDLESS = ("manager.current_step() < 200", "not os.path.exists('enough')")
TELLS = (
    "    print('model', manager.current_step(), [it.double().sum().item() for it in model.parameters()], flush=True)\n"
)


class Replica:
    """The program of the page, as a replica group of one process."""

    def __init__(self, number: int, folder: Path, lighthouse: str) -> None:
        self._said = folder / f"said{number}.{len(list(folder.glob('said*')))}"
        environment = {
            "REPLICA": str(number),
            "TORCHFT_LIGHTHOUSE": lighthouse,
            "GRADLANE_SOCKET": "process",
            "GRADLANE_JOB": str(EXAMPLES / "template.toml"),
            "MASTER_ADDR": "127.0.0.1",
            "WORLD_SIZE": "1",
            "LOCAL_WORLD_SIZE": "1",
        }
        with self._said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "train.py"], cwd=folder, env=os.environ | environment, stdout=said, stderr=said
            )

    @property
    def said(self) -> str:
        """So far, also to stderr."""
        return self._said.read_text()

    def steps(self, replicas: int) -> int:
        """It has done so many with that many replicas."""
        return len(re.findall(rf"^step \d+ of {replicas} replicas: loss", self.said, re.MULTILINE))

    def models(self) -> dict[str, str]:
        """By step."""
        return dict(re.findall(r"^model (\d+) (.*)$", self.said, re.MULTILINE))


@pytest.fixture
def begin(tmp_path: Path) -> Callable[[int], Replica]:
    """Starts the replica group of that number."""
    from torchft.coordination import LighthouseServer

    text = programs_of("trainers")[-1].replace(*ENDLESS)
    (tmp_path / "train.py").write_text(text.replace("    optimizer.step()\n", f"    optimizer.step()\n{TELLS}"))
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=1, join_timeout_ms=100, heartbeat_timeout_ms=5000)
    begun: list[Replica] = []

    def begin(number: int) -> Replica:
        begun.append(Replica(number, tmp_path, lighthouse.address()))
        return begun[-1]

    yield begin
    for replica in begun:
        replica.process.kill()
        replica.process.wait()
    lighthouse.shutdown()


def test_a_replica_group_dies_and_another_comes(begin: Callable[[int], Replica], tmp_path: Path) -> None:
    first, second = begin(0), begin(1)
    for replica in (first, second):
        until(lambda replica=replica: replica.steps(2) > 10, lambda: first.said + second.said)
    second.process.kill()
    second.process.wait()
    alone = first.steps(1)
    until(lambda: first.steps(1) > alone + 10, lambda: first.said)
    together = first.steps(2)
    third = begin(1)
    until(lambda: min(first.steps(2) - together, third.steps(2)) > 10, lambda: first.said + third.said)
    (tmp_path / "enough").touch()
    assert "is gone: its agent closed the connection" in first.said
    for other in (second, third):
        both = first.models().keys() & other.models().keys()
        assert len(both) > 5
        assert [first.models()[step] for step in both] == [other.models()[step] for step in both]
