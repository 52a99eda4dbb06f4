# SPDX-License-Identifier: Apache-2.0
"""A worker of the accuracy study: one process on a host that trains one model after the other, as ordered.

Orders come on a Unix socket, so the processes of the study need no network but the one that they measure.
"""

import argparse
import hashlib
import os
import sys
from datetime import timedelta
from multiprocessing.connection import Client
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns that hosts have no names

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import GradBucket  # pyright: ignore[reportPrivateImportUsage]
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector

import gradlane.torch
from bench.study.cases import TRAININGS, WORKERS, Case, Order, Outcome
from bench.study.training import build, evaluate, optimizer_of, set_rate, task_of
from gradlane.errors import GradlaneError
from lab.training.data import Sampler
from lab.training.models import TASKS, Task

_PROG = "python -m bench.study.worker"
_GLOO_SECONDS = 300  # a busy machine is no dead peer


class Worker:
    """The rank's process group and data, kept over all runs."""

    def __init__(self, rank: int, agent: str, rendezvous: str) -> None:
        self._rank = rank
        self._agent = agent
        store = dist.FileStore(rendezvous, WORKERS)  # pyright: ignore[reportPrivateImportUsage]
        timeout = timedelta(seconds=_GLOO_SECONDS)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=WORKERS, timeout=timeout)
        self._groups = {size: dist.new_group(list(range(size))) for size in range(2, WORKERS + 1)}
        self._data = {model: task.load() for model, task in TASKS.items()}

    def run(self, order: Order, link: Any) -> Outcome:
        """One run. Between joining and the first step, and after the last one, it waits for a word to go on.

        Raises GradlaneError or RuntimeError if an all-reduce fails.
        """
        case = order.case
        task = task_of(case.model)
        torch.manual_seed(case.seed)
        model = build(case.model)
        group = self._groups[case.workers]
        session = None
        parallel = DistributedDataParallel(model, process_group=group)
        if case.sync == "gradlane":
            session = gradlane.torch.connect(order.job, self._rank, self._agent, model)
            parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
        elif case.sync == "rank-order":
            parallel.register_comm_hook(group, _add_in_rank_order)
        link.send("joined")
        link.recv()
        losses = self._train(case, task, parallel)
        link.send("trained")
        link.recv()
        statistics = session.close() if session is not None else {}
        flat = parameters_to_vector(model.parameters()).detach().numpy()
        digest = hashlib.sha256(flat.tobytes()).hexdigest()
        test = evaluate(task, model, self._data[case.model]) if self._rank == 0 else None
        return Outcome(losses, test, digest, statistics)

    def _train(self, case: Case, task: Task, model: nn.Module) -> list[float]:
        training, data = TRAININGS[case.model], self._data[case.model]
        optimizer = optimizer_of(case.model, model)
        sampler = Sampler(len(data.train_inputs), training.batch // case.workers, self._rank, case.workers, case.seed)
        losses: list[float] = []
        for step in range(case.steps):
            set_rate(optimizer, task.rate(step, case.steps))
            indices = sampler.indices(step)
            optimizer.zero_grad()
            loss = task.loss(
                model, torch.from_numpy(data.train_inputs[indices]), torch.from_numpy(data.train_targets[indices])
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses


def _add_in_rank_order(group: dist.ProcessGroup, bucket: GradBucket) -> Future[torch.Tensor]:
    """A communication hook: ((g0 + g1) + g2) ..., divided once; exact, over Gloo."""
    buffer = bucket.buffer()
    parts = [torch.empty_like(buffer) for _ in range(group.size())]
    dist.all_gather(parts, buffer, group=group)
    total = parts[0]
    for part in parts[1:]:
        total += part
    future: Future[torch.Tensor] = Future()
    future.set_result(buffer.copy_(total / group.size()))
    return future


def main() -> int:
    """Serves orders until there are no more; returns the exit code."""
    parser = argparse.ArgumentParser(prog=_PROG, description=__doc__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--agent", required=True, metavar="SOCKET", help="the Unix socket of this host's agent")
    parser.add_argument("--rendezvous", required=True, metavar="FILE", help="where the workers find each other")
    parser.add_argument("--orders", required=True, metavar="SOCKET", help="the Unix socket on which the study listens")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    print("ready", file=sys.stderr, flush=True)
    with Client(options.orders, "AF_UNIX") as link:
        worker = Worker(options.rank, options.agent, options.rendezvous)
        link.send(options.rank)
        while (order := link.recv()) is not None:
            try:
                link.send(worker.run(order, link))
            except (GradlaneError, RuntimeError) as problem:
                # What comes through C++ has its traceback below the first line.
                reason = str(problem).partition("\n")[0]
                print(f"{_PROG}: rank {options.rank}: error: {reason}", file=sys.stderr)
                return 1
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
