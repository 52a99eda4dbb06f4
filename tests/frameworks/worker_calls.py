# SPDX-License-Identifier: Apache-2.0
"""A rank in JAX that looks at how its calls are made: `handler`; `callback`, where XLA refuses the handler; `devices`,
where there are two."""

import ctypes
import logging
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gradlane.jax as gl
from gradlane.data_parallel.bucket import Bucket
from gradlane.jax import calls, handler
from tests.frameworks import problem

KINDS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
REDUCED = ("int8", "int32", "int64", "uint8", "float16", "bfloat16", "float32", "float64")


class Notes(logging.Handler):
    """What gradlane logs."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def of_another_version(call: int) -> None:
    """A handler that says that it was made for version 0.9 of XLA's interface."""
    extension = ctypes.c_void_p.from_address(call + 8).value or 0
    metadata = ctypes.c_void_p.from_address(extension + 24).value or 0
    ctypes.c_int.from_address(metadata + 24).value = 0
    ctypes.c_int.from_address(metadata + 28).value = 9
    ctypes.c_uint32.from_address(metadata + 32).value = 0


def values(kind: str, shape: tuple[int, ...], seed: int) -> Any:
    numbers = np.random.default_rng(seed).integers(0, 5, shape)
    return jnp.asarray(numbers, kind)


def check_kinds(rank: int) -> list[Any]:
    """All types and shapes, at once and compiled: the same, bit for bit."""
    shapes = ((), (3,), (0, 2), (2, 3, 4))
    tree = [values(kind, shape, rank) for kind in KINDS for shape in shapes]
    expected = [values(kind, shape, 1) for kind in KINDS for shape in shapes]
    found: list[Any] = []
    for function in (gl.broadcast, jax.jit(gl.broadcast, static_argnums=1)):
        got = function(tree, 1)
        for one, other in zip(got, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    tree = [values(kind, shape, rank) for kind in REDUCED for shape in shapes] + [jnp.full(10, 1 / 3) * (rank + 1)]
    for op in (gl.Sum, gl.Max):
        at_once, compiled = (f(tree, op) for f in (gl.allreduce, jax.jit(gl.allreduce, static_argnums=1)))
        for one, other, mine in zip(at_once, compiled, tree, strict=True):
            assert one.dtype == other.dtype == mine.dtype
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        assert at_once[-1].tolist() == [1 / 3 + 2 / 3 if op == gl.Sum else 2 / 3] * 10
        found += at_once
    many = [jnp.full(1, k + rank) for k in range(1100)]  # more than can be under way at once
    sums = jax.jit(gl.allreduce, static_argnums=1)(many, gl.Sum)
    assert [int(it[0]) for it in sums] == [2 * k + 1 for k in range(1100)]
    return found


def check_large(rank: int) -> None:
    """More than the agent may share with this process: it works on JAX's own memory."""
    [total] = jax.jit(lambda x: gl.allreduce([x * 2], gl.Sum))(jnp.full(4 << 20, rank + 1, jnp.float32))
    assert (np.asarray(total) == 6).all()


def check_means(rank: int) -> list[Any]:
    """Of many small gradients of all types, of a few large ones and of none: at once and compiled, bit for bit."""
    kinds = ("float32", "bfloat16", "float16", "float64", "float32")
    shapes = ((3,), (), (0, 2), (2, 3, 4))
    tree = [values(kind, shapes[k % 4], 9 * k + rank) / 3 for kind in kinds for k in range(60)]
    tree += [jnp.full((400, 350), (rank + 1) / 3, jnp.float32) for _ in range(3)]
    at_once = gl.mean(tree, "at once")
    seen: list[tuple[str, int]] = []
    starts, fills = Bucket.start_by, Bucket.fill_by
    Bucket.start_by = lambda it, take: (seen.append(("start", it.places[0])), starts(it, take))[1]
    Bucket.fill_by = lambda it, give: (fills(it, give), seen.append(("fill", it.places[0])))[0]
    compiled = jax.block_until_ready(jax.jit(lambda tree: gl.mean(tree, "compiled"))(tree))
    Bucket.start_by, Bucket.fill_by = starts, fills
    order = [place for what, place in seen if what == "start"]
    assert len(order) >= 5
    assert order == sorted(order, reverse=True)
    assert seen == [("start", place) for place in order] + [("fill", place) for place in order]
    for one, other, mine in zip(at_once, compiled, tree, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape) == (mine.dtype, mine.shape)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    assert np.allclose(at_once[-1], 0.5, atol=0.01)
    return [it.astype(jnp.float64) for it in at_once]


def check_errors() -> None:
    """They are JAX's, in our words, and of an operation that fails the others are over."""
    wrong = jax.jit(lambda tree: gl.allreduce(tree, gl.Average))
    try:
        jax.block_until_ready(wrong([jnp.ones(1000, jnp.float32), jnp.arange(3)]))
    except jax.errors.JaxRuntimeError as error:
        assert "ValueError: there is the mean of floats only, not of int64" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("integers have no mean")


def check_owners() -> None:
    """A program does not call what is gone, and lets it go."""

    class Owner:
        pass

    owners = [Owner()]
    program = jax.jit(lambda: calls.call("trial", owners[0], lambda *_: None, [], []))
    program()
    jax.effects_barrier()
    owners.clear()
    try:
        program()
        jax.effects_barrier()
    except jax.errors.JaxRuntimeError as error:
        assert "AgentError: this process has no 'trial' any more" in str(error), error  # noqa: PT017
    else:
        raise AssertionError("its owner is gone")


def main(way: str) -> None:
    jax.config.update("jax_enable_x64", True)
    notes = Notes()
    logging.getLogger("gradlane").addHandler(notes)
    if way == "callback":
        right = jax.ffi.pycapsule
        jax.ffi.pycapsule = lambda _: right(of_another_version)
    gl.init()
    rank = gl.rank()
    found: list[Any] = []
    if way == "devices":
        mesh = jax.sharding.Mesh(np.array(jax.devices()), "d")
        split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("d"))
        for k in range(2):
            given = jax.device_put(jnp.arange(8.0) + rank + k, split)
            found = [jax.jit(gl.allreduce)(given)]
            assert found[0].tolist() == [j + 0.5 + k for j in range(8)]
    else:
        found = check_kinds(rank)
        found += check_means(rank)
        check_large(rank)
        said = [text for text in notes.texts if "io_callback" in text]
        assert (calls.refusal() is None) == (way == "handler")
        if way == "callback":
            assert "JaxRuntimeError: INVALID_ARGUMENT" in said[0]
            assert "API version (0.9) is incompatible" in said[0], said
        assert len(said) == (way == "callback"), said
        rare = jnp.full(3, rank, jnp.float8_e4m3fn)
        assert jax.jit(gl.broadcast, static_argnums=1)(rare, 1).astype(int).tolist() == [1] * 3
        assert handler.has(np.float32)
        assert not handler.has(rare.dtype)
    said = [text for text in notes.texts if "io_callback" in text]
    assert len(said) == 1, said  # once, also if it is said again and again
    if way == "handler":
        assert "elements of a rare type" in said[0]
        check_owners()
    if way == "devices":
        assert "not for one CPU device" in said[0]
    else:
        check_errors()
    gl.shutdown()
    problem.tell([], found)


if __name__ == "__main__":
    main(sys.argv[1])
