# SPDX-License-Identifier: Apache-2.0
"""One worker: trains its model, synchronises gradients as its arm says, and records each step."""

import copy
import hashlib
import os
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from lab.training import bursts, gradient_sync
from lab.training.config import Config
from lab.training.data import Dataset, Sampler
from lab.training.gradient_sync import GradientSync, Hook
from lab.training.models import TASKS, Task
from lab.training.records import Records
from lab.training.sockets import check_congestion_control, tune_process

_STATISTICS_INTERVAL = 0.5  # seconds


class AllReduceClock:
    """Measures how long the all-reduces of a step take, around every arm's hook alike.

    From the first bucket's hand-over to the hook until the last bucket's future is done: it overlaps with the rest of
    the backward pass, as the all-reduces themselves do.
    """

    def __init__(self, inner: Hook) -> None:
        self._inner = inner
        self._first = 0.0
        self._last = 0.0

    def take(self) -> float:
        """Seconds of the all-reduces that have ended since the last call: those of a step.

        Without a barrier these are of the step before, in part or all of them, and none at times.
        """
        seconds = self._last - self._first
        self._first = self._last = 0.0
        return seconds

    def hook(self, state: Any, bucket: GradBucket) -> Future[torch.Tensor]:
        """The communication hook."""
        started = time.monotonic()

        def done(future: Future[torch.Tensor]) -> torch.Tensor:
            self.observe(started, time.monotonic())
            return future.value()

        return self._inner(state, bucket).then(done)

    def observe(self, started: float, ended: float) -> None:
        """An all-reduce is over."""
        self._first = min(self._first or started, started)
        self._last = max(self._last, ended)


@dataclass(frozen=True)
class Snapshot:
    """The flat parameters after `step` steps, `t` seconds after the start."""

    step: int
    t: float
    parameters: torch.Tensor


def run(config: Config, rank: int, records: Records) -> None:
    """One worker's whole run. Raises RuntimeError (from torch.distributed) or GradlaneError if a peer is lost."""
    arm = config.effective_arm
    node = config.worker(rank)
    check_congestion_control(arm.congestion_control)
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    sink = bursts.discard(node.address, config.discard_port) if config.discard_port else None
    task = TASKS[config.model]
    dataset = task.load()
    torch.manual_seed(config.seed)
    model = task.build(config.width)
    _warm_up(task, model, dataset, config)
    _join(config, rank)
    sync = gradient_sync.connect(config, rank, model)
    clock = AllReduceClock(sync.hook)
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    if sync.overlap is None:
        parallel = DistributedDataParallel(
            model,
            bucket_cap_mb=arm.bucket_bytes / 2**20,
            gradient_as_bucket_view=True,
        )
        parallel.register_comm_hook(sync.state, clock.hook)
    else:
        parallel = model
        optimizer = sync.overlap(model, optimizer, clock.observe)
    dist.barrier()  # every connection exists now, so that they all can be tuned
    if not tune_process(node.address, arm) and len(config.workers) > 1:
        raise RuntimeError(f"no TCP connection of this process is bound to {node.address}: is it {node.interface}'s?")
    start = _agree_on_start(config)
    size = sum(p.numel() for p in model.parameters())
    records.write(
        "start",
        arm=arm.name,
        world=len(config.workers),
        start=start,
        seed=config.seed,
        model=config.model,
        parameters=size,
        gradient_bytes=4 * size,
        metric=task.metric,
        target=task.target,
        torch=torch.__version__,
    )
    snapshots = _train(config, rank, task, parallel, optimizer, dataset, start, clock, sync, records)
    dist.barrier()  # nobody closes a connection that a slower rank still needs
    statistics = sync.close()
    dist.destroy_process_group()
    if sink is not None:
        sink.close()
    outcome = _evaluate(config, task, model, dataset, snapshots, records) if rank == 0 else {}
    flat = parameters_to_vector(model.parameters()).detach()
    records.write(
        "final",
        steps=config.steps,
        seconds=snapshots[-1].t,
        parameters_sha256=hashlib.sha256(flat.numpy().tobytes()).hexdigest(),
        cpu_seconds=time.process_time(),
        statistics=statistics,
        **outcome,
    )


def _warm_up(task: Task, model: nn.Module, dataset: Dataset, config: Config) -> None:
    """One step's computation on a copy, so that the first step doesn't pay for the libraries' own start."""
    twin = copy.deepcopy(model)
    inputs, targets = _examples(dataset, np.arange(config.batch))
    task.loss(twin, inputs, targets).backward()


def _join(config: Config, rank: int) -> None:
    """Makes the process group. Raises RuntimeError that names who does not come within the run's join_timeout."""
    os.environ["GLOO_SOCKET_IFNAME"] = config.worker(rank).interface
    # A file, because the ranks share one machine: a TCPStore asks the resolver for its peers' names, and in a fabric
    # without a name server that takes tens of seconds.
    store = dist.FileStore(config.rendezvous, len(config.workers))  # pyright: ignore[reportPrivateImportUsage]
    store.set(f"joined/{rank}", "")
    deadline = time.monotonic() + config.join_timeout
    for worker in config.workers:
        try:
            store.wait([f"joined/{worker.rank}"], timedelta(seconds=max(0.01, deadline - time.monotonic())))
        except RuntimeError:
            raise RuntimeError(f"worker {worker} has not joined within {config.join_timeout} s") from None
    # From here on silence means that a peer is dead.
    timeout = timedelta(seconds=config.timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=len(config.workers), timeout=timeout)


def _agree_on_start(config: Config) -> float:
    """CLOCK_MONOTONIC seconds of step 0, rank 0's word: all ranks are namespaces of one machine and share the clock."""
    start = torch.tensor([time.monotonic() + config.start_delay], dtype=torch.float64)
    dist.broadcast(start, src=0)
    return float(start)


def _train(
    config: Config,
    rank: int,
    task: Task,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    dataset: Dataset,
    start: float,
    clock: AllReduceClock,
    sync: GradientSync,
    records: Records,
) -> list[Snapshot]:
    """All steps; returns snapshots for the evaluation after the run, so that no arm's clock contains evaluation."""
    sampler = Sampler(len(dataset.train_inputs), config.batch, rank, len(config.workers), config.seed)
    snapshots: list[Snapshot] = []
    next_statistics = start + _STATISTICS_INTERVAL
    time.sleep(max(0.0, start - time.monotonic()))
    for step in range(config.steps):
        began = time.monotonic()
        for group in optimizer.param_groups:
            group["lr"] = task.rate(step, config.steps)
        optimizer.zero_grad()
        loss = task.loss(model, *_examples(dataset, sampler.indices(step)))
        loss.backward()
        optimizer.step()
        ended = time.monotonic()
        records.write(
            "step",
            step=step,
            t=ended - start,
            loss=loss.item(),
            step_seconds=ended - began,
            allreduce_seconds=clock.take(),
        )
        last = step == config.steps - 1
        if last or (rank == 0 and (step + 1) % config.evaluate_every == 0):
            snapshots.append(Snapshot(step + 1, ended - start, parameters_to_vector(model.parameters()).detach()))
        if ended >= next_statistics:
            next_statistics += _STATISTICS_INTERVAL
            if statistics := sync.statistics():
                records.write("statistics", t=ended - start, statistics=statistics)
            if rank == 0:
                print(f"step {step + 1} of {config.steps}, loss {loss.item():.3f}", file=sys.stderr)
    return snapshots


def _examples(dataset: Dataset, indices: np.ndarray[Any, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(dataset.train_inputs[indices]), torch.from_numpy(dataset.train_targets[indices])


def _evaluate(
    config: Config, task: Task, model: nn.Module, dataset: Dataset, snapshots: list[Snapshot], records: Records
) -> dict[str, Any]:
    """Evaluates every snapshot, the last of which stays in `model`; returns what the final record says of it."""
    inputs, targets = torch.from_numpy(dataset.test_inputs), torch.from_numpy(dataset.test_targets)
    reached: Snapshot | None = None
    value = 0.0
    for snapshot in snapshots:
        vector_to_parameters(snapshot.parameters, model.parameters())
        value = task.evaluate(model, inputs, targets)
        records.write("evaluation", step=snapshot.step, t=snapshot.t, metric=task.metric, value=value)
        if reached is None and task.reached(value):
            reached = snapshot
    return {
        "metric": task.metric,
        "target": task.target,
        "final_value": value,
        "seconds_to_target": reached.t if reached else None,
        "steps_to_target": reached.step if reached else None,
    }
