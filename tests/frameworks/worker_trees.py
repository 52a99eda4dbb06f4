# SPDX-License-Identifier: Apache-2.0
"""A rank in JAX that looks at every way in which a pytree can be reduced, and at the order in which that happens."""

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import gradlane.jax as gl
from gradlane.data_parallel.bucket import Bucket
from tests.frameworks import problem


@jax.jit
def late(value: Any) -> Any:
    """The same value in a while: JAX goes on meanwhile."""
    matrix = jnp.ones((1000, 1000))
    for _ in range(10):
        matrix = jnp.tanh(matrix @ matrix * value)
    return value + 0 * matrix[0, 0]


def check_trees(rank: int) -> None:
    def reduce(tree: Any) -> Any:
        constant = jnp.full(2, rank, jnp.int32)  # of no argument of the function
        return gl.allreduce(tree), gl.allreduce([tree["a"], constant], gl.Sum), gl.allreduce(np.int32(rank), gl.Max)

    for function in (reduce, jax.jit(reduce)):
        for k in range(2):
            tree = {"b": jnp.full((2, 3), rank + k, jnp.bfloat16), "a": jnp.float32(2 * rank), "none": None}
            mean, (total, constant), largest = function(tree)
            assert mean["b"].dtype == jnp.bfloat16
            assert mean["b"].tolist() == [[0.5 + k] * 3] * 2
            assert (float(mean["a"]), mean["none"], float(total), int(largest)) == (1.0, None, 2.0, 1)
            assert constant.tolist() == [1, 1]
    for function in (gl.broadcast, jax.jit(gl.broadcast, static_argnums=1)):
        found = function({"n": jnp.full(2, rank, jnp.uint32), "flag": jnp.array(rank == 1)}, 1)
        assert (found["n"].tolist(), bool(found["flag"])) == ([1, 1], True)
    for wrong in (gl.allreduce, gl.mean):
        try:
            wrong([jnp.arange(3)])
        except ValueError as error:
            assert "int32" in str(error)  # noqa: PT017
        else:
            raise AssertionError("integers have no mean")


def check_order(communicator: Any) -> None:
    """Later calls have their values first, and those of the second function have them long before."""
    called: list[int] = []
    inner = communicator.all_reduce_into

    def noted(arrays: Any, *more: Any) -> None:
        called.extend(map(int, arrays))
        inner(arrays, *more)

    communicator.all_reduce_into = noted

    @jax.jit
    def backward(value: Any) -> list[Any]:
        values = []
        for _ in range(6):
            value = jnp.max(jnp.sin(jnp.full((300, 300), value) @ jnp.ones((300, 300)))) * 0 + value - 1
            values.append(value)
        return [gl.allreduce(each, gl.Max) for each in reversed(values)]

    @jax.jit
    def at_once(value: Any) -> Any:
        return gl.allreduce(value, gl.Max)

    last = jnp.float32(7)
    pending = [*backward(jnp.float32(6)), at_once(late(jnp.float32(6)))]
    gl.allreduce(last)
    assert called == list(range(8)), called
    assert list(map(float, pending)) == list(range(7))
    called.clear()
    constant = jnp.float32(3)
    again = jax.jit(lambda: gl.allreduce(constant))
    assert (float(again()), float(again()), called) == (3.0, 3.0, [3, 3])
    del communicator.all_reduce_into


def check_models(rank: int) -> None:
    """What makes two models, and what does not."""
    started: list[str] = []
    inner = Bucket.start_by

    def noted(bucket: Bucket, take: Any) -> None:
        started.append(bucket.name)
        inner(bucket, take)

    Bucket.start_by = noted

    def one(size: int, name: str = "model") -> str:
        [mean] = jax.jit(lambda gradient: gl.mean([gradient], name))(jnp.full(size, rank, jnp.float32))
        assert mean.tolist() == [0.5] * size
        return started[-1]

    first = one(5)
    assert one(5) == first  # another function
    assert len({first, one(6), one(5, "discriminator")}) == 3
    Bucket.start_by = inner

    @jax.jit
    def steps(values: Any) -> Any:
        # One model's means twice in a step, which do not need one another.
        return jax.lax.scan(lambda _, v: (None, (gl.mean([v * rank])[0], gl.mean([v * rank + 1])[0])), None, values)

    _, (means, others) = steps(jnp.arange(4.0))
    assert means.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert others.tolist() == [1.0, 1.5, 2.0, 2.5]


def check_optax(rank: int) -> None:
    """It averages before all that it stands before, and only where gradients are accumulated to their end."""
    optimizer = optax.MultiSteps(optax.chain(gl.distributed(optax.clip(1.0)), optax.scale(-1.0)), 2)
    state = optimizer.init(jnp.zeros(2))
    update = jax.jit(optimizer.update)
    found = []
    for gradient in (0.0, 2.0 * rank, 8.0 * rank, 0.0):
        updates, state = update(jnp.full(2, gradient), state)
        found.append(updates.tolist())
    assert found == [[0.0] * 2, [-0.5] * 2, [0.0] * 2, [-1.0] * 2], found


def main() -> None:
    communicator = gl.init(bucket_bytes=100)
    rank = gl.rank()
    check_trees(rank)
    check_order(communicator)
    check_models(rank)
    check_optax(rank)
    mean = jax.jit(gl.mean)
    for _ in range(2):  # a function outlives the job that it was compiled in
        assert mean([jnp.full(2, rank, jnp.float32)])[0].tolist() == [0.5] * 2
        gl.shutdown()
        gl.init()
    problem.tell([], [np.zeros(1)])
    if rank == 1:
        time.sleep(1)
    # JAX still runs it when a rank leaves the job, and when a program ends.
    jax.jit(gl.mean)(late(jnp.float32(1)))
    if rank == 0:
        gl.shutdown()


if __name__ == "__main__":
    main()
