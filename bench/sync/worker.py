# SPDX-License-Identifier: Apache-2.0
"""A training process of bench.sync: it trains the model as an order says, and keeps what the parameters were when.

Requests on standard input and answers are lines of JSON: {"order", "job", "folder"}, and a Trace.
"""

import itertools
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns that hosts have no names

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector

import gradlane.torch
from bench.harness.worker import serve
from bench.sync import emulated, methods, slowness
from bench.sync.cases import ARMS, CASES, Order, Settings
from bench.sync.finish import Finish
from lab.training.data import Sampler
from lab.training.models import TASKS

_PORT = 29402
_NOTICE = 0.05  # s from the agreement on a start to the start
_WARM_UP = 5  # steps in which the learning rate rises
_MOMENTUM = 0.9
_TASK = TASKS["cnn"]


@dataclass(frozen=True)
class Trace:
    """What a worker found. Seconds, and bytes that its host has sent; `waited`: neither pause nor computation;
    `told`, `slept`: in pauses, as it should be and as it was.

    ends: of each step. times, steps: of the snapshots, from the start; the step that was being computed.
    """

    seconds: float
    waited: float
    told: float
    slept: float
    sent: int
    ends: list[float]
    times: list[float]
    steps: list[int]


class Worker:
    """A rank: its place in the process group that DDP needs, and its agent's socket."""

    def __init__(self, rank: int, size: int, address: str, socket: str) -> None:
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        dist.init_process_group("gloo", init_method=f"tcp://{address}:{_PORT}", rank=rank, world_size=size)
        self._rank, self._size, self._socket = rank, size, socket
        self._ddp = methods.Ddp()
        data = _TASK.load()
        self._inputs, self._targets = torch.from_numpy(data.train_inputs), torch.from_numpy(data.train_targets)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Trains a new model. Raises GradlaneError or RuntimeError if a peer is lost."""
        settings = Settings(**request["order"].pop("settings"))
        order = Order(settings=settings, **request["order"])
        folder = Path(request["folder"])
        torch.manual_seed(order.seed)
        model, pauses = emulated.perceptron(emulated.widths(settings.width))
        training = self._training(order, model, request["job"])
        trace = self._train(order, training, model, pauses, folder)
        training.close()  # before anything else that waits: groups may have been decided that wait for this worker
        dist.barrier()
        return asdict(trace)

    def _training(self, order: Order, model: nn.Module, job: str) -> methods.Training:
        arm = ARMS[order.arm]
        inner = torch.optim.SGD(model.parameters(), lr=order.learning_rate, momentum=_MOMENTUM)
        if arm.method == "ddp":
            return self._ddp.ddp(model, inner)
        if arm.method == "post-local":
            return self._ddp.post_local(model, inner)
        session = gradlane.torch.connect(job, self._rank, self._socket)
        return (methods.overlap if arm.method == "overlap" else methods.synchronise)(model, inner, session)

    def _train(
        self, order: Order, training: methods.Training, model: nn.Module, pauses: emulated.Pauses, folder: Path
    ) -> Trace:
        sampler = Sampler(len(self._inputs), order.settings.batch, self._rank, self._size, order.seed)
        factors = slowness.factors(CASES[order.case], order.seed, self._rank, self._size, order.steps)
        parameters = list(model.parameters())
        finish = Finish(folder / "finish", self._rank, self._size, training.lockstep)
        ends: list[float] = []
        times: list[float] = []
        steps: list[int] = []
        kept: list[torch.Tensor] = []
        due = 0.0
        start = self._agree_on_start()
        computed, sent = time.thread_time(), _sent()
        for step in itertools.count():
            now = time.monotonic() - start
            if step == order.steps or finish.reached(step, now >= order.seconds):
                break
            for group in training.optimizer.param_groups:
                group["lr"] = order.learning_rate * min(1.0, (step + 1) / _WARM_UP)
            pauses.step = order.settings.computation * float(factors[step])
            indices = torch.from_numpy(sampler.indices(step))
            training.optimizer.zero_grad()
            loss = _TASK.loss(training.model, self._inputs[indices], self._targets[indices])
            now = time.monotonic() - start
            if now >= due:
                # What the forward pass has used is up to date in all arms, and nothing waits for it.
                kept.append(parameters_to_vector(parameters).detach())
                times.append(now)
                steps.append(step)
                due = now + order.interval
            loss.backward()
            training.optimizer.step()
            ends.append(time.monotonic() - start)
        computed = time.thread_time() - computed
        sent = _sent() - sent
        np.save(folder / f"{self._rank}.npy", torch.stack(kept).numpy())
        return Trace(ends[-1], ends[-1] - pauses.slept - computed, pauses.told, pauses.slept, sent, ends, times, steps)

    def _agree_on_start(self) -> float:
        """Rank 0's word: all hosts share the machine's clock."""
        start = torch.tensor([time.monotonic() + _NOTICE], dtype=torch.float64)
        dist.broadcast(start, src=0)
        time.sleep(max(0.0, float(start) - time.monotonic()))
        return float(start)


def _sent() -> int:
    return int(Path("/sys/class/net/eth0/statistics/tx_bytes").read_text())


def main() -> None:
    """Arguments: RANK SIZE ADDRESS-OF-0 SOCKET."""
    worker = Worker(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5])
    serve(worker.run)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
