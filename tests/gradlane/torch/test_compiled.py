# SPDX-License-Identifier: Apache-2.0
"""torch.compile of models that train over Gradlane."""

from pathlib import Path

import pytest
import torch

from tests.gradlane.torch import worker_compiled
from tests.gradlane.torch.ranks import job_file, run
from tests.support.agents import Agent

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


# Inductor's C++ takes long; what matters here is what is traced.
@pytest.mark.parametrize(("device", "backend"), [("cpu", "aot_eager"), pytest.param("cuda:0", "inductor", marks=GPU)])
def test_a_compiled_model_trains_as_it_does_without(
    agents: list[Agent], tmp_path: Path, device: str, backend: str
) -> None:
    file = job_file(tmp_path / "job.toml", agents[:2])
    run(worker_compiled.compiled, agents[:2], file, device, backend)
