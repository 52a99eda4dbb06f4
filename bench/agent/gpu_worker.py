# SPDX-License-Identifier: Apache-2.0
"""A training process of bench.agent.gpu: it trains a model by the method asked for, and says how long steps took.

Requests on standard input and answers are lines of JSON: {"method", "layers", "width", "batch", "length", "steps"}, and
{"step": seconds, "loss": after the last}.
"""

import os
import sys
import time
from typing import Any

os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns that hosts have no names

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gradlane.torch
from bench.harness.worker import serve

_PORT = 29402
_WARM = 3  # steps: after the first one DDP rebuilds its buckets
_WORDS = 50_257


class _Decoder(nn.Module):
    """GPT-2's shape: tied words, learnt positions, norms first."""

    def __init__(self, layers: int, width: int, length: int) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, layers, nn.LayerNorm(width), enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(length), persistent=False)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.layers(self.words(words) + self.positions, mask=self.mask, is_causal=True)
        return nn.functional.linear(x, self.words.weight)


def _measure(group: Any, rank: int, job: str, socket: str, request: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(1)
    device = torch.device("cuda", 0)
    model = _Decoder(request["layers"], request["width"], request["length"]).to(device)
    optimizer: torch.optim.Optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    method, session, trained = request["method"], None, model
    if method == "backend":
        trained = DistributedDataParallel(model, process_group=group)
    elif method == "gloo":
        trained = DistributedDataParallel(model)
    elif method != "none":
        session = gradlane.torch.connect(job, rank, socket, model)
        if method == "hook":
            trained = DistributedDataParallel(model)
            trained.register_comm_hook(session, gradlane.torch.allreduce_hook)
        else:
            optimizer = gradlane.torch.overlap(model, optimizer, session)
    generator = torch.Generator(device).manual_seed(rank)
    began, loss = 0.0, torch.zeros(())
    for step in range(_WARM + request["steps"]):
        if step == _WARM:
            torch.cuda.synchronize()
            began = time.perf_counter()
        words = torch.randint(0, _WORDS, (request["batch"], request["length"]), generator=generator, device=device)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            guesses = trained(words)[:, :-1]
            loss = nn.functional.cross_entropy(guesses.reshape(-1, _WORDS), words[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
    if isinstance(optimizer, gradlane.torch.OverlappedOptimizer):
        optimizer.synchronize()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    if session is not None:
        session.close()
    return {"step": seconds / request["steps"], "loss": float(loss)}


def main() -> None:
    """Arguments: SIZE ADDRESS-OF-0 JOB-OF-THE-BACKEND JOB RANK SOCKET."""
    size, address, own, job, rank, socket = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5]), sys.argv[6]
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "GRADLANE_JOB": own, "GRADLANE_SOCKET": socket}
    dist.init_process_group("gloo", init_method=f"tcp://{address}:{_PORT}", rank=rank, world_size=size)
    group: Any = dist.new_group(backend="gradlane")
    serve(lambda request: _measure(group, rank, job, socket, request))
    dist.destroy_process_group(group)


if __name__ == "__main__":
    main()
