# SPDX-License-Identifier: Apache-2.0
"""DeAR, with which training without the barrier is compared, trains as DistributedDataParallel does."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import worker_dear
from tests.gradlane.torch.ranks import run


@pytest.mark.parametrize("size", [2, 3, 4])
def test_it_ends_with_ddps_parameters(tmp_path: Path, size: int) -> None:
    nobody: Any = [SimpleNamespace(socket="")] * size  # it needs no agents
    for differences in run(worker_dear.as_ddp, nobody, tmp_path / "job.toml"):
        assert max(differences) < 1e-6
