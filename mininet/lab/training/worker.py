# SPDX-License-Identifier: Apache-2.0
"""One worker: trains its model together with the others' as its arm says, and records each step."""

import copy
import hashlib
import os
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from lab.training import bursts, gradient_sync
from lab.training.clock import Exchange, ExchangeClock
from lab.training.config import Config
from lab.training.data import Dataset, Sampler
from lab.training.gradient_sync import GradientSync, Joint
from lab.training.models import TASKS, Task
from lab.training.records import Records
from lab.training.sockets import check_congestion_control, tune_process

_STATISTICS_INTERVAL = 0.5  # seconds


@dataclass(frozen=True)
class Snapshot:
    """The flat parameters when the job has taken `step` batches for each worker, `t` seconds after the start."""

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
    store = _join(config, rank)
    sync = gradient_sync.connect(config, rank, model)
    clock = ExchangeClock()
    joint = sync.join(model, torch.optim.Adam(model.parameters(), lr=task.learning_rate), clock)
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
        lockstep=joint.lockstep,
        torch=torch.__version__,
    )
    numbers = _numbers(config, rank, joint.lockstep, store)
    snapshots = _train(config, rank, task, joint, dataset, numbers, start, clock, sync, records)
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


def _join(config: Config, rank: int) -> Any:
    """Makes the process group; returns the store by which the workers have met.

    Raises RuntimeError that names who does not come within the run's join_timeout.
    """
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
    return store


def _agree_on_start(config: Config) -> float:
    """CLOCK_MONOTONIC seconds of step 0, rank 0's word: all ranks are namespaces of one machine and share the clock."""
    start = torch.tensor([time.monotonic() + config.start_delay], dtype=torch.float64)
    dist.broadcast(start, src=0)
    return float(start)


def _numbers(config: Config, rank: int, lockstep: bool, store: Any) -> Iterator[int]:
    """The batches that a worker takes, one for each of its steps, as numbers in one order for all workers.

    The job takes `steps` for each worker, all in all. In lockstep each takes as many. Else who is ready takes the next:
    so all arms do the same work on the same examples, whoever does how much of it.
    """
    world = len(config.workers)
    if lockstep:
        yield from range(rank, config.steps * world, world)
    else:
        while (number := store.add("batches", 1) - 1) < config.steps * world:
            yield number


def _train(
    config: Config,
    rank: int,
    task: Task,
    joint: Joint,
    dataset: Dataset,
    numbers: Iterator[int],
    start: float,
    clock: ExchangeClock,
    sync: GradientSync,
    records: Records,
) -> list[Snapshot]:
    """All steps; returns snapshots for the evaluation after the run, so that no arm's clock contains evaluation.

    They are of this worker's own model, the last one of the model that all workers have in the end.
    """
    world = len(config.workers)
    sampler = Sampler(len(dataset.train_inputs), config.batch, 0, 1, config.seed)
    computation = config.worker(rank).computation_ms / 1000
    snapshots: list[Snapshot] = []
    next_statistics = start + _STATISTICS_INTERVAL
    ended = since = start
    clock.turn(start, joint.group())
    computed = 0.0  # seconds of the processor in the last step

    time.sleep(max(0.0, start - time.monotonic()))
    for step, number in enumerate(numbers):
        began, before = time.monotonic(), time.thread_time()
        taken = number // world
        for param_group in joint.optimizer.param_groups:
            param_group["lr"] = task.rate(taken, config.steps)
        joint.optimizer.zero_grad()
        loss = task.loss(joint.model, *_examples(dataset, sampler.indices(number)))
        time.sleep(max(0.0, computation - computed))
        loss.backward()
        _record(clock.take(before=since), start, records)
        since = time.monotonic()
        joint.optimizer.step()
        clock.turn(since, joint.group())
        ended = time.monotonic()
        computed = time.thread_time() - before
        records.write("step", step=step, t=ended - start, loss=loss.item(), step_seconds=ended - began)
        if rank == 0 and (step + 1) % config.evaluate_every == 0:
            snapshots.append(_snapshot(joint, taken + 1, ended - start))
        if ended >= next_statistics:
            next_statistics += _STATISTICS_INTERVAL
            if statistics := sync.statistics():
                records.write("statistics", t=ended - start, statistics=statistics)
            if rank == 0:
                print(f"step {taken + 1} of {config.steps}, loss {loss.item():.3f}", file=sys.stderr)
    last = ended
    if joint.average is not None:
        joint.average()
        ended = time.monotonic()
    final = _snapshot(joint, config.steps, ended - start)
    dist.barrier()  # nobody closes a connection that a slower rank still needs
    _record(clock.take(before=last), start, records)
    if joint.average is not None:
        _record([Exchange(range(world), last, last, ended)], start, records)
    return [*(snapshot for snapshot in snapshots if snapshot.step < config.steps), final]


def _snapshot(joint: Joint, step: int, t: float) -> Snapshot:
    return Snapshot(step, t, parameters_to_vector(joint.model.parameters()).detach())


def _record(exchanges: Iterable[Exchange], start: float, records: Records) -> None:
    for it in exchanges:
        ready, done, seconds = it.ready - start, it.done - start, it.done - it.began
        records.write("exchange", group=list(it.group), ready=ready, done=done, seconds=seconds)


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
