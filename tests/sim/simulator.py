# SPDX-License-Identifier: Apache-2.0
"""Runs of the simulator in tests."""

from dataclasses import dataclass
from typing import Any

import pytest

from gradlane_sim import fabrics
from gradlane_sim.carriers import Gradlane
from gradlane_sim.document import document
from gradlane_sim.program import DEFAULT, Program
from gradlane_sim.specification import SECOND, Fabric, Job, Specification, Tensor

needs_simulator = pytest.mark.skipif(not DEFAULT.exists(), reason=f"{DEFAULT} is not built: `make sim` does it")
MILLISECOND = SECOND // 1000
RATE = 1_000_000_000


def leaf_spine(spines: int = 2) -> Fabric:
    """Two hosts at each of two leaves: hosts 0 to 3, leaves 4 and 5, spines from 6 on."""
    return fabrics.leaf_spine(2, 2, spines, RATE, RATE, 64_000, 1000)


def all_reduce(carrier: Gradlane | None = None, *, size: int = 400_000, steps: int = 3, servers: int = 0) -> Job:
    """Of all four hosts; a mean that is to be exact is compared with the right one."""
    exact = carrier is None or not (carrier.push or carrier.pull)
    tensors = (Tensor(0, size, 0), Tensor(0, 4 * 11, 3))
    return Job(1, (0, 1, 2, 3), carrier or Gradlane(), tensors, steps=steps, servers=servers, check=exact)


@dataclass(frozen=True)
class Run:
    """What a run told; `job` is the first one's."""

    told: dict[str, Any]

    @property
    def job(self) -> dict[str, Any]:
        return self.told["jobs"][0]

    def assert_complete(self, specification: Specification) -> None:
        """Every step of every worker is, no guarantee was broken, and what was to be exact was."""
        job = specification.jobs[0]
        assert self.job["error"] == ""
        assert self.told["violations"] == []
        assert self.job["steps_complete"] == job.steps
        results = job.workers * job.steps * len(job.tensors)
        assert len(self.job["operations"]) == results
        if job.check:
            assert (self.job["compared"], self.job["wrong"], self.told["slices_missing"]) == (results, 0, 0)


def run(specification: Specification) -> Run:
    """Simulates."""
    return Run(run_document(document(specification)))


def run_document(told: dict[str, Any]) -> dict[str, Any]:
    """The same for the program's input, whatever that is."""
    return Program().run(told, lambda _simulated, _wall: None)
