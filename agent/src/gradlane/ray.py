# SPDX-License-Identifier: Apache-2.0
"""Ray Train over the agents of its nodes.

    from gradlane.ray import TorchConfig

    config = TorchConfig(job="template.toml")
    TorchTrainer(train, torch_config=config, scaling_config=ScalingConfig(num_workers=4)).fit()

Every process group of the workers is the backend "gradlane" then, and `gradlane.torch.default_session()` has what the
hook and `overlap` need.
"""

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Ray, which the environment of the types does not have: what is taken from it counts as Any.
_config: Any = importlib.import_module("ray.train.torch.config")


@dataclass
class TorchConfig(_config.TorchConfig):
    """As Ray's own, but of the backend "gradlane".

    `job`: the path of a job file or template where the trainer is made; the workers get its text. Without it they take
    GRADLANE_JOB of their environment, or ask the controller of GRADLANE_CONTROLLER. `socket`: of the agents, on every
    node; "process": without a daemon; default GRADLANE_SOCKET there, or /run/gradlane/agent.sock. `fit` raises what the
    workers do: gradlane.AgentError, which names the culprit, or gradlane.job.JobError.
    """

    backend: str | None = "gradlane"
    job: str | Path | None = None
    socket: str | None = None

    @property
    def backend_cls(self) -> Any:
        """What Ray calls."""
        return _Backend


class _Backend(_config._TorchBackend):
    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """The workers are there: they learn of the job, and join it."""
        text = None if backend_config.job is None else Path(backend_config.job).read_text()
        worker_group.execute(_prepare, text, backend_config.socket)
        super().on_start(worker_group, backend_config)


def _prepare(text: str | None, socket: str | None) -> None:
    """In a worker."""
    importlib.import_module("gradlane.torch")  # registers the backend
    if socket is not None:
        os.environ["GRADLANE_SOCKET"] = socket
    if text is not None:
        # In memory, as it may have the job's key: nothing is left when the worker ends, however it does.
        descriptor = os.memfd_create("job.toml")
        os.write(descriptor, text.encode())
        os.environ["GRADLANE_JOB"] = f"/proc/self/fd/{descriptor}"
