# SPDX-License-Identifier: Apache-2.0
"""A training process of bench.agent.overlap: it trains a model by the method asked for, and says how long steps took.

Requests on standard input and answers are lines of JSON: {"method", "layers", "width", "forward", "backward",
"steps"}, and {"steps": [seconds of each], "waits": [seconds that each layer of the model waited in a forward pass]}.
"""

import itertools
import os
import sys
import time
from functools import partial
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns that hosts have no names

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from bench.agent.dear import Dear
from bench.harness.pause import paused
from bench.harness.worker import serve

_PORT = 29401
_WARM = 3  # steps: after the first one DDP rebuilds its buckets
_BATCH = 4  # of so few examples that what counts is the pauses


class _Layer(nn.Module):
    """A wide linear layer; it notes when its forward pass began, and when it was over."""

    def __init__(self, width: int, forward: float, backward: float) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width, bias=False)
        self._pauses = partial(time.sleep, forward), partial(time.sleep, backward)
        self.began = self.ended = 0.0

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        weight = self.linear.weight  # waits for its update
        self.began = time.perf_counter()
        outputs = paused(nn.functional.linear(inputs, weight), *self._pauses)
        self.ended = time.perf_counter()
        return outputs


class Worker:
    """A rank: the process group that DDP needs, and where its agent is."""

    def __init__(self, rank: int, size: int, address: str, job: str, socket: str) -> None:
        torch.set_num_threads(1)
        os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
        dist.init_process_group("gloo", init_method=f"tcp://{address}:{_PORT}", rank=rank, world_size=size)
        self._rank, self._job, self._socket = rank, job, socket

    def measure(self, request: dict[str, Any]) -> dict[str, Any]:
        """Trains a new model. Methods: "gloo" and "hook" of DistributedDataParallel, "dear", "overlap", and "reversed":
        overlap with the last layer first."""
        torch.manual_seed(1)
        shape = request["width"], request["forward"], request["backward"]
        layers = [_Layer(*shape) for _ in range(request["layers"])]
        model = nn.Sequential(*layers)
        optimizer: torch.optim.Optimizer | Dear = _sgd(list(model.parameters()))
        method, session, parallel = request["method"], None, model
        if method not in ("gloo", "dear"):
            session = gradlane.torch.connect(self._job, self._rank, self._socket)
            # The order of the parameters numbers the layers.
            parameters = list(model.parameters())
            session.watch(nn.ParameterList(parameters[::-1] if method == "reversed" else parameters))
        if method in ("gloo", "hook"):
            # Buckets of a layer each, as overlap() has them.
            parallel = DistributedDataParallel(model, bucket_cap_mb=4 * shape[0] ** 2 / 2**20)
            if session is not None:
                parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
        elif session is not None:
            optimizer = gradlane.torch.overlap(model, optimizer, session)
        else:
            optimizer = Dear(layers, _sgd)
        answer = _train(parallel, layers, optimizer, request["steps"])
        if isinstance(optimizer, Dear):
            optimizer.close()
        if session is not None:
            session.close()
        return answer


def _sgd(parameters: list[nn.Parameter]) -> torch.optim.SGD:
    return torch.optim.SGD(parameters, lr=1e-3)


def _train(
    model: nn.Module,
    layers: list[_Layer],
    optimizer: torch.optim.Optimizer | Dear,
    steps: int,
) -> dict[str, Any]:
    inputs = torch.randn(_BATCH, layers[0].linear.in_features)
    ends: list[float] = []
    waits = [0.0] * len(layers)
    dist.barrier()
    for step in range(_WARM + steps):
        begin = time.perf_counter()
        loss = model(inputs).square().mean()
        if step > _WARM:
            for number, layer in enumerate(layers):
                waits[number] += (layer.began - begin) / (steps - 1)
                begin = layer.ended
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step >= _WARM - 1:
            ends.append(time.perf_counter())
    return {"steps": [after - before for before, after in itertools.pairwise(ends)], "waits": waits}


def main() -> None:
    """Arguments: RANK SIZE ADDRESS-OF-0 JOB SOCKET."""
    worker = Worker(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6])
    serve(worker.measure)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
