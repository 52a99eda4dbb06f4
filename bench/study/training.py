# SPDX-License-Identifier: Apache-2.0
"""How the study's models are made, trained and evaluated, wherever that happens."""

import dataclasses

import torch
from torch import nn

from bench.study.cases import TRAININGS
from lab.training.data import Dataset
from lab.training.models import TASKS, Task


def task_of(name: str) -> Task:
    """The task with the study's own rate."""
    return dataclasses.replace(TASKS[name], learning_rate=TRAININGS[name].learning_rate)


def build(name: str) -> nn.Module:
    """A model of that name, from torch's random numbers."""
    training = TRAININGS[name]
    model = TASKS[name].build(training.width)
    if training.optimizer == "sgd":
        # He's initialisation: from PyTorch's own SGD needs most of these steps to leave the plateau at the start.
        for module in model.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    return model


def optimizer_of(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """For all parameters; its rate is set before each step."""
    if TRAININGS[name].optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), lr=TRAININGS[name].learning_rate, momentum=0.9)
    return torch.optim.Adam(model.parameters(), lr=TRAININGS[name].learning_rate)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for parameters in optimizer.param_groups:
        parameters["lr"] = rate


@torch.no_grad()
def evaluate(task: Task, model: nn.Module, data: Dataset) -> tuple[float, float]:
    """(mean cross-entropy in nats, fraction of right predictions) on the test examples."""
    inputs, targets = torch.from_numpy(data.test_inputs), torch.from_numpy(data.test_targets)
    right = model(inputs).argmax(-1) == targets
    return float(task.loss(model, inputs, targets)), float(right.float().mean())
