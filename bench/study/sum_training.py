# SPDX-License-Identifier: Apache-2.0
"""A training whose gradients a switch adds up, in one process: the workers' replicas are equal, so one is enough."""

import time
from typing import Any

import numpy as np
import torch
from torch import nn

from bench.study.cases import TRAININGS
from bench.study.fixed_point import FixedPoint, Flags, Floats, SummedTensor, mean_in_order
from bench.study.sum_cases import BAD, BEYOND, EVERY, EXCESS, NORM, SumCase
from bench.study.training import build, evaluate, optimizer_of, set_rate, task_of
from lab.training.data import Dataset, Sampler

_BITS = {"int16": 16, "int32": 32}


class Reduction:
    """The all-reduces of one run, step by step."""

    def __init__(self, case: SumCase, elements: int) -> None:
        arm = self._arm = case.arm
        self._case = case
        self.tensor = None
        if arm.wire in _BITS:
            numbers = FixedPoint(_BITS[arm.wire], case.workers, headroom=case.headroom)
            self.tensor = SummedTensor(numbers, elements)

    def mean(self, gradients: Floats, step: int) -> Floats:
        """Of (workers, elements) gradients."""
        if self._arm.wire == "float16":  # as PyTorch's fp16_compress_hook
            total = torch.zeros(gradients.shape[1], dtype=torch.float16)
            for gradient in torch.from_numpy(gradients).half().div_(len(gradients)):
                total += gradient
            return total.float().numpy()
        if self.tensor is None:
            return mean_in_order(gradients)
        missing = self._missing(step, self.tensor.slices) if self._arm.push else None
        beyond = BEYOND if self._arm.clipped and _is_special(step) else 0
        return self.tensor.mean(gradients, missing, beyond)

    def _missing(self, step: int, slices: int) -> Flags | None:
        """Whom a slice's result comes without: within the budget, and never the closer of the message."""
        workers, push = self._case.workers, self._arm.push
        budget = int(push * slices)
        if self._arm.late:
            seems_lost = np.zeros((workers, slices), bool)
            seems_lost[-1, slices - budget :] = True
        else:
            random = np.random.default_rng([self._case.seed, workers, step])
            seems_lost = random.random((workers, slices)) < EXCESS * push
        seems_lost[step % workers] = False
        return seems_lost & (seems_lost.cumsum(axis=1) <= budget)


def train(case: SumCase, data: Dataset) -> dict[str, Any]:
    """One run; returns its figures."""
    began = time.process_time()
    task, training, arm = task_of(case.model), TRAININGS[case.model], case.arm
    torch.manual_seed(case.seed)
    model = build(case.model)
    optimizer = optimizer_of(case.model, model)
    parameters = list(model.parameters())[::-1]  # the order in which DDP puts them into buckets
    gradients = np.empty((case.workers, sum(p.numel() for p in parameters)), np.float32)
    reduction = Reduction(case, gradients.shape[1])
    batch = training.batch // case.workers
    samplers = [Sampler(len(data.train_inputs), batch, rank, case.workers, case.seed) for rank in range(case.workers)]
    losses: list[float] = []
    for step in range(case.steps):
        set_rate(optimizer, task.rate(step, case.steps))
        loss = 0.0
        for rank, sampler in enumerate(samplers):
            indices = sampler.indices(step)
            own = task.loss(
                model, torch.from_numpy(data.train_inputs[indices]), torch.from_numpy(data.train_targets[indices])
            )
            optimizer.zero_grad()
            own.backward()
            _flatten(parameters, gradients[rank])
            if arm.bad and _is_special(step) and rank == step // EVERY % case.workers:
                gradients[rank] *= np.float32(BAD)
            loss += own.item() / case.workers
        _spread(torch.from_numpy(reduction.mean(gradients, step)), parameters)
        if arm.bad:
            nn.utils.clip_grad_norm_(parameters, NORM)
        optimizer.step()
        losses.append(loss)
    test_loss, test_accuracy = evaluate(task, model, data)
    tensor = reduction.tensor
    given = gradients.size * (case.steps - 1)  # the first step is by hosts
    return {
        "model": case.model,
        "workers": case.workers,
        "seed": case.seed,
        "steps": case.steps,
        "arm": arm.name,
        "losses": losses,
        "test_loss": test_loss,
        "test_accuracy": test_accuracy,
        "clipped": tensor.clipped / given if tensor else None,
        "left_out": tensor.left_out / (case.workers * tensor.slices * (case.steps - 1)) if tensor else None,
        "seconds": time.process_time() - began,
    }


def _is_special(step: int) -> bool:
    return step % EVERY == EVERY - 1


def _flatten(parameters: list[nn.Parameter], to: Floats) -> None:
    start = 0
    for parameter in parameters:
        assert parameter.grad is not None
        to[start : start + parameter.numel()] = parameter.grad.numpy().reshape(-1)
        start += parameter.numel()


def _spread(flat: torch.Tensor, parameters: list[nn.Parameter]) -> None:
    start = 0
    for parameter in parameters:
        parameter.grad = flat[start : start + parameter.numel()].view_as(parameter)
        start += parameter.numel()
