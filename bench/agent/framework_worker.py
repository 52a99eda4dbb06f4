# SPDX-License-Identifier: Apache-2.0
"""A training process of bench.agent.frameworks: METHOD RANK LAYERS WIDTH, WORKERS (HOST:PORT of each rank, for the
framework's own distribution), the job file and the agent's socket.

Requests on standard input and answers are lines of JSON: {"steps"}, and {"step": seconds, "cpu": seconds of this
process's processor time in it}.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.harness.worker import serve

_WARM = 5  # steps
_BATCH = 8


def _torch(arm: str, rank: int, layers: int, width: int, workers: list[str]) -> Callable[[], object]:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    parts: list[torch.nn.Module] = []
    for _ in range(layers):
        parts += [torch.nn.Linear(width, width, bias=False), torch.nn.Tanh()]
    model = torch.nn.Sequential(*parts)
    host, port = workers[0].split(":")
    session: Any = None
    if arm != "own":
        import gradlane.torch

        session = gradlane.torch.connect(os.environ["GRADLANE_JOB"], rank, model=model)
    dist.init_process_group("gloo", init_method=f"tcp://{host}:{port}", rank=rank, world_size=len(workers))
    parallel = torch.nn.parallel.DistributedDataParallel(model)
    if session is not None:
        import gradlane.torch

        parallel.register_comm_hook(session, gradlane.torch.allreduce_hook)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    inputs = torch.ones(_BATCH, width)

    def step() -> None:
        optimizer.zero_grad()
        parallel(inputs).square().mean().backward()
        optimizer.step()

    return step


def _tensorflow(arm: str, rank: int, layers: int, width: int, workers: list[str]) -> Callable[[], object]:
    own = arm == "own"
    if own:
        cluster = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": rank}}
        os.environ["TF_CONFIG"] = json.dumps(cluster)
    import importlib

    tf: Any = importlib.import_module("tensorflow")
    tf.config.threading.set_intra_op_parallelism_threads(1)
    strategy: Any = tf.distribute.MultiWorkerMirroredStrategy() if own else None
    start = np.random.default_rng(1).standard_normal((layers, width, width)).astype(np.float32) / width**0.5
    weights = [tf.Variable(it) for it in start]
    inputs = tf.ones((_BATCH, width))
    gl: Any = None
    if not own:
        gl = importlib.import_module("gradlane.tensorflow")
        gl.init(rank=rank)

    def gradients() -> Any:
        tape = tf.GradientTape() if own else gl.DistributedGradientTape(tf.GradientTape())
        with tape:
            values = inputs
            for weight in weights:
                values = tf.tanh(values @ weight)
            loss = tf.reduce_mean(values * values)
        return tape.gradient(loss, weights)

    def train() -> None:
        means = gradients()
        if own:
            means = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, means)
        for weight, mean in zip(weights, means, strict=True):
            weight.assign_sub(1e-3 * mean)

    compiled = tf.function(train)
    return compiled if strategy is None else lambda: strategy.run(compiled)


def _jax(arm: str, rank: int, layers: int, width: int, workers: list[str]) -> Callable[[], object]:
    import importlib

    os.environ["PJRT_NPROC"] = "1"  # thread for arithmetic, as the others have
    jax: Any = importlib.import_module("jax")
    jnp: Any = importlib.import_module("jax.numpy")
    gl: Any = None
    own = arm == "own"
    if own:
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        jax.distributed.initialize(workers[0], len(workers), rank)
    else:
        gl = importlib.import_module("gradlane.jax")
        gl.init(rank=rank)
    if arm == "callback":
        calls: Any = importlib.import_module("gradlane.jax.calls")
        calls.refusal = lambda: "it is to be measured"
    start = np.random.default_rng(1).standard_normal((layers, width, width)).astype(np.float32) / width**0.5
    weights = [jnp.asarray(it) for it in start]
    inputs = jnp.ones((_BATCH, width))

    def loss_of(weights: Any) -> Any:
        values = inputs
        for weight in weights:
            values = jnp.tanh(values @ weight)
        return jnp.mean(values * values)

    def train(weights: Any) -> Any:
        gradients = jax.grad(loss_of)(weights)
        means = jax.lax.pmean(gradients, "ranks") if own else gl.mean(gradients)
        return [weight - 1e-3 * mean for weight, mean in zip(weights, means, strict=True)]

    compiled = jax.pmap(train, axis_name="ranks") if own else jax.jit(train)
    state: list[Any] = [[weight[None] for weight in weights] if own else weights]  # pmap's leading axis: devices

    def step() -> None:
        state[0] = jax.block_until_ready(compiled(state[0]))

    return step


_MAKERS = {"torch": _torch, "tensorflow": _tensorflow, "jax": _jax}


def main() -> None:
    """Runs it."""
    method, rank, layers, width = sys.argv[1], *map(int, sys.argv[2:5])
    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "GRADLANE_JOB": sys.argv[6], "GRADLANE_SOCKET": sys.argv[7]}
    name, _, arm = method.partition("-")
    step = _MAKERS[name](arm, rank, layers, width, sys.argv[5].split(","))
    for _ in range(_WARM):
        step()

    def measure(request: dict[str, Any]) -> dict[str, float]:
        began, used = time.perf_counter(), time.process_time()
        for _ in range(request["steps"]):
            step()
        seconds, used = time.perf_counter() - began, time.process_time() - used
        return {"step": seconds / request["steps"], "cpu": used / request["steps"]}

    serve(measure)
    os._exit(0)  # TensorFlow's and JAX's own distribution wait for one another at the end, or abort


if __name__ == "__main__":
    main()
