# SPDX-License-Identifier: Apache-2.0
"""Callbacks of Keras for a model that several processes train, under Horovod's names."""

from typing import Any

import numpy as np

from gradlane.data_parallel import world
from gradlane.data_parallel.optimizer import is_wrapped
from gradlane.keras.library import Callback, keras
from gradlane.keras.variables import broadcast_variables


class BroadcastGlobalVariablesCallback(Callback):
    """All processes start from the variables of model and optimizer at `root_rank`.

    A model that is not built before its first batch gets them after it. Raises ValueError if the model is not compiled
    for several processes, AgentError.
    """

    def __init__(self, root_rank: int = 0) -> None:
        super().__init__()
        self._root_rank = root_rank
        self._due = False

    def on_train_begin(self, logs: Any = None) -> None:
        """Sends what there is."""
        _check(self.model)
        self._due = True
        if self.model.built:
            if not self.model.optimizer.built:
                self.model.optimizer.build(self.model.trainable_variables)
            self._send()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Sends what the first batch has made."""
        if self._due:
            self._send()

    def _send(self) -> None:
        self._due = False
        broadcast_variables([*self.model.variables, *self.model.optimizer.variables], self._root_rank)


def _check(model: Any) -> None:
    if not is_wrapped(model.optimizer):
        raise ValueError(
            "compile the model with gradlane.keras.DistributedOptimizer(optimizer); where its policy is mixed_float16, "
            "with DistributedOptimizer(LossScaleOptimizer(optimizer))"
        )
    if keras.backend.backend() == "tensorflow" and model.jit_compile:
        raise ValueError("XLA can't compile what talks to the agent: compile the model with jit_compile=False")


class MetricAverageCallback(Callback):
    """At the end of each epoch the metrics are the means over all processes, for the callbacks that come after this."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Puts the means into `logs`. Raises AgentError."""
        if logs:
            names = sorted(logs)
            means = world.all_reduce(np.array([float(logs[name]) for name in names], np.float64))
            logs.update(zip(names, means.tolist(), strict=True))
