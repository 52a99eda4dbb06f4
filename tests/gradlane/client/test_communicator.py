# SPDX-License-Identifier: Apache-2.0
"""gradlane.Communicator over real agents on loopback addresses, against numpy."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import gradlane
from gradlane import AgentError, Communicator
from tests.support import members
from tests.support.agents import Agent, Within, loopback
from tests.support.communicators import Ranks, each, job_file, joined


def values(rank: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    random = np.random.default_rng(rank)
    return random.integers(1, 5, shape).astype(dtype) if "float" not in dtype else random.random(shape).astype(dtype)


@pytest.mark.parametrize(("machines", "processes"), [(2, 1), (3, 1), (2, 2), (1, 3)])
def test_every_collective(hosts: list[Agent], tmp_path: Path, machines: int, processes: int) -> None:
    with joined(hosts, job_file(tmp_path, machines, processes), machines, processes) as ranks:
        call_every_collective(ranks)


@pytest.mark.parametrize("machines", [2, 3])
def test_every_collective_without_daemons(tmp_path: Path, machines: int) -> None:
    addresses = loopback(machines, 11)
    file = members.job_file(tmp_path, addresses, lines='buffer = "4MB"')
    with joined([Within(address) for address in addresses], file, machines) as ranks:
        call_every_collective(ranks)


@pytest.mark.parametrize("push", [0.0, 0.05])
@pytest.mark.parametrize("transport", ['collective = "direct"', 'collective = "ring"', ""])
@pytest.mark.parametrize(("op", "expected"), [("mean", 1.0), ("max", 2.0)])
def test_an_array_may_have_layers_of_classes_in_which_nothing_may_be_lost(
    tmp_path: Path, push: float, transport: str, op: str, expected: float
) -> None:
    addresses = loopback(3, 21)
    classes = f"[loss]\npush = {push}\n[[loss.classes]]\nlayers = [0, 1]\npush = 0\n"
    file = members.job_file(tmp_path, addresses, lines=f"{transport}\n{classes}")
    spans = [(0, 0), (20_000, 1), (30_000, 2), (60_000, 0)]
    with joined([Within(address) for address in addresses], file, 3) as ranks:
        for _ in range(2):
            for result in each(
                ranks, lambda c: c.all_reduce(np.full(90_000, float(c.rank), np.float32), "x", op, layers=spans)
            ):
                np.testing.assert_array_equal(result, np.full(90_000, expected, np.float32))


def call_every_collective(ranks: Ranks) -> None:
    size = len(ranks)
    shape = (size * 6, 5)
    assert [(c.rank, c.size) for c in ranks] == [(k, size) for k in range(size)]
    inputs = [values(k, shape) for k in range(size)]
    total = np.sum(inputs, axis=0)

    for result in each(ranks, lambda c: c.all_reduce(inputs[c.rank])):
        np.testing.assert_allclose(result, total / size, rtol=1e-6)
    for name in ("weights", None):
        places = [array.copy() for array in inputs]
        each(ranks, lambda c, name=name, places=places: c.all_reduce(places[c.rank], name=name, out=places[c.rank]))
        for place in places:
            np.testing.assert_allclose(place, total / size, rtol=1e-6)
    for op, expected in (("sum", np.sum), ("min", np.min), ("max", np.max), ("product", np.prod)):
        for dtype in ("float64", "int32", "uint8"):
            arrays = [values(k, (77,), dtype) for k in range(size)]
            results = each(ranks, lambda c, op=op, arrays=arrays: c.all_reduce(arrays[c.rank], op=op))
            for result in results:
                assert result.dtype == dtype
                np.testing.assert_allclose(result, expected(arrays, axis=0).astype(dtype), rtol=1e-12)
    parts = each(ranks, lambda c: c.reduce_scatter(inputs[c.rank]))
    np.testing.assert_allclose(np.concatenate(parts), total, rtol=1e-6)
    for result in each(ranks, lambda c: c.all_gather(inputs[c.rank])):
        np.testing.assert_array_equal(result, np.stack(inputs))
    exchanged = each(ranks, lambda c: c.all_to_all(inputs[c.rank]))
    blocks = [array.reshape(size, 6, 5) for array in inputs]
    for k, result in enumerate(exchanged):
        np.testing.assert_array_equal(result.reshape(size, 6, 5), np.stack([block[k] for block in blocks]))
    for root in range(size):
        places = [array.copy() for array in inputs]
        each(ranks, lambda c, root=root, places=places: c.broadcast(places[c.rank], root))
        for place in places:
            np.testing.assert_array_equal(place, inputs[root])
        reduced = each(ranks, lambda c, root=root: c.reduce(inputs[c.rank], root))
        np.testing.assert_allclose(reduced.pop(root), total, rtol=1e-6)
        assert reduced == [None] * (size - 1)
    if size > 1:
        received = each(ranks, lambda c: pass_on(c, inputs[c.rank]))
        for k, result in enumerate(received):
            np.testing.assert_array_equal(result, inputs[k - 1])
    each(ranks, Communicator.barrier)


def pass_on(c: Communicator, array: np.ndarray) -> np.ndarray:
    """To the next rank, and from the one before."""
    sending = c.send(array, (c.rank + 1) % c.size, tag=3, asynchronous=True)
    result = c.receive(np.empty_like(array), (c.rank - 1) % c.size, tag=3)
    sending.wait(60)
    return result


def test_a_barrier_waits_for_the_last(hosts: list[Agent], tmp_path: Path) -> None:
    arrived = []

    def come(c: Communicator) -> None:
        if c.rank == 1:
            time.sleep(0.3)
            arrived.append(c.rank)
        c.barrier()
        assert arrived == [1]

    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        each(ranks, come)


def test_groups_count_their_own_ranks(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:
        members = [ranks[0], ranks[2]]
        groups = each(members, lambda c: c.group([0, 2]))
        assert [(g.rank, g.size) for g in groups] == [(0, 2), (1, 2)]
        results = each(groups, lambda g: g.all_reduce(np.full(10, g.rank + 1.0), op="sum"))
        for result in results:
            assert (result == 3).all()
        for result in each(groups, lambda g: g.broadcast(np.full(4, g.rank), root=1)):
            assert (result == 1).all()
        with pytest.raises(AgentError, match="rank 1 is not in it"):
            ranks[1].group([0, 2])
        with pytest.raises(AgentError, match="ascending"):
            ranks[0].group([2, 0])


def test_names_may_come_in_any_order_and_handles_be_waited_for_in_any(hosts: list[Agent], tmp_path: Path) -> None:
    names = [f"layer {k}" for k in range(12)]

    def step(c: Communicator) -> dict[str, np.ndarray]:
        random = np.random.default_rng(c.rank)
        order = random.permutation(12)
        handles = {}
        for k in order:
            handles[names[k]] = c.all_reduce(
                np.full((k + 1, 300), c.rank + k, np.float32), name=names[k], layers=int(k), asynchronous=True
            )
        return {names[k]: handles[names[k]].wait(60) for k in random.permutation(12)}

    with joined(hosts, job_file(tmp_path, 3), 3) as ranks:
        for _ in range(2):
            for results in each(ranks, step):
                for k, name in enumerate(names):
                    assert results[name].shape == (k + 1, 300)
                    assert (results[name] == k + 1).all()


@pytest.mark.parametrize("wire", ["float16", "bfloat16"])
def test_float32_travels_as_the_jobs_wire_type(hosts: list[Agent], tmp_path: Path, wire: str) -> None:
    array = np.linspace(-3, 3, 5000, dtype=np.float32)
    with joined(hosts, job_file(tmp_path, 2, transport=f'wire = "{wire}"'), 2) as ranks:
        named = each(ranks, lambda c: c.all_reduce(array, name="w"))
        exact = each(ranks, lambda c: c.all_reduce(array))
        sent = [c.statistics()["slices_sent"] for c in ranks]
    for result in exact:
        np.testing.assert_array_equal(result, array)
    for result in named:
        assert result.dtype == np.float32
        assert 0 < np.abs(result - array).max() <= (0.002 if wire == "float16" else 0.02)
    assert all(sent)


def test_arrays_of_any_layout_and_type(hosts: list[Agent], tmp_path: Path) -> None:
    grid = np.arange(60.0, dtype=np.float32).reshape(6, 10)
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        for view in (grid[:, ::2], grid.T, grid[::-1]):
            for name in (None, f"view {view.shape} {view.strides}"):
                for result in each(ranks, lambda c, view=view, name=name: c.all_reduce(view, name=name)):
                    np.testing.assert_array_equal(result, view)
        targets = [np.zeros((6, 20), np.float32) for _ in ranks]
        each(ranks, lambda c: c.all_reduce(grid, out=targets[c.rank][:, ::2]))
        for target in targets:
            np.testing.assert_array_equal(target[:, ::2], grid)
            assert not target[:, 1::2].any()
        flags = [np.array([True, False, False]), np.array([False, True, False])]
        for result in each(ranks, lambda c: c.all_reduce(flags[c.rank], op="max")):
            assert result.dtype == bool
            assert result.tolist() == [True, True, False]
        scalar = each(ranks, lambda c: c.all_reduce(np.array(c.rank + 1.0)))
        assert [float(s) for s in scalar] == [1.5, 1.5]


def test_bfloat16_arrays(hosts: list[Agent], tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(8).astype(ml_dtypes.bfloat16)
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        for name in (None, "w"):
            for result in each(ranks, lambda c, name=name: c.all_reduce(array, name=name)):
                assert result.dtype == array.dtype
                np.testing.assert_array_equal(result.astype(np.float32), np.arange(8))


def test_shared_memory_is_reduced_in_place_without_a_copy(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        gradients = each(ranks, lambda c: c.gradient("w", (100, 30), layers=[(0, 1), (1500, 2)]))
        for gradient, c in zip(gradients, ranks, strict=True):
            gradient[:] = c.rank
        results = each(ranks, lambda c: c.all_reduce(gradients[c.rank], name="w", out=gradients[c.rank]))
        for gradient, result in zip(gradients, results, strict=True):
            assert result is gradient
            assert (gradient == 0.5).all()
        arrays = [c.empty((1000,), np.int32) for c in ranks]
        for array, c in zip(arrays, ranks, strict=True):
            array[:] = c.rank + 1
        for array in each(ranks, lambda c: c.all_reduce(arrays[c.rank], op="sum", out=arrays[c.rank])):
            assert (array == 3).all()
        with pytest.raises(ValueError, match="there is a gradient 'w' already"):
            ranks[0].gradient("w", (2,))


def test_an_array_larger_than_one_operation(hosts: list[Agent], tmp_path: Path) -> None:
    # Small slices, so that it takes several submissions: a message has at most 8192.
    file = job_file(tmp_path, 2, transport="slice_bytes = 64\ntrace_every = 0")
    with joined(hosts, file, 2) as ranks:
        arrays = [np.random.default_rng(k).integers(0, 1000, 400_000).astype(np.int32) for k in range(2)]
        for result in each(ranks, lambda c: c.all_reduce(arrays[c.rank], op="sum")):
            np.testing.assert_array_equal(result, arrays[0] + arrays[1])
        for result in each(ranks, lambda c: c.all_gather(arrays[c.rank])):
            np.testing.assert_array_equal(result, arrays)
        for result in each(ranks, lambda c: c.broadcast(arrays[c.rank], root=1)):
            np.testing.assert_array_equal(result, arrays[1])


def test_what_is_used_wrongly_is_told_and_the_job_goes_on(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        first, second = ranks
        array = np.ones(10, np.float32)
        with pytest.raises(ValueError, match="no element type 'complex64'"):
            first.all_reduce(array.astype(np.complex64))
        with pytest.raises(AgentError, match="the mean of floats only"):
            first.all_reduce(np.ones(3, np.int32), name="ints")
        with pytest.raises(ValueError, match="no reduction 'median'"):
            first.all_reduce(array, op="median")
        with pytest.raises(ValueError, match="can't be divided among 2"):
            first.reduce_scatter(np.ones(3))
        with pytest.raises(ValueError, match="ranks are 0 to 1"):
            first.broadcast(array, root=2)
        pending = first.all_reduce(array, name="w", asynchronous=True)
        with pytest.raises(AgentError, match="'w' is in flight"):
            first.all_reduce(array, name="w", asynchronous=True)
        with pytest.raises(TimeoutError):
            pending.wait(0.05)
        assert not pending.done()
        np.testing.assert_array_equal(second.all_reduce(array, name="w"), array)
        np.testing.assert_array_equal(pending.wait(60), array)
        with pytest.raises(ValueError, match=r"'w' is the mean of \(10,\) float32, not the sum"):
            first.all_reduce(array, name="w", op="sum")
        with pytest.raises(AgentError, match="layer spans"):
            first.all_reduce(array, name="v", layers=[(1, 0)])
        each(ranks, Communicator.barrier)
    with pytest.raises(AgentError, match="was closed"):
        first.all_reduce(array)


def test_a_fork_is_not_the_connections_owner(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        child = os.fork()
        if not child:
            code = 1
            with contextlib.suppress(BaseException):
                try:
                    ranks[0].barrier()
                except AgentError as error:
                    code = 0 if "after a fork" in str(error) else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        each(ranks, Communicator.barrier)


def test_ctrl_c_ends_a_wait(hosts: list[Agent], tmp_path: Path) -> None:
    with joined(hosts, job_file(tmp_path, 2), 2) as ranks:
        pending = ranks[0].all_reduce(np.ones(10), asynchronous=True)
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell runs behind
        try:
            threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
            with pytest.raises(KeyboardInterrupt):
                pending.wait()
        finally:
            signal.signal(signal.SIGINT, before)
        ranks[1].all_reduce(np.ones(10))
        pending.wait(60)


def test_what_was_lost_is_owed_and_can_be_saved(hosts: list[Agent], tmp_path: Path) -> None:
    file = job_file(tmp_path, 2, loss="push = 0.2")
    with joined(hosts, file, 2) as ranks:
        zeros = np.zeros(50_000, np.float32)
        owed = np.zeros(50_000, np.float32)
        owed[10_000:20_000] = 4
        each(ranks, lambda c: c.all_reduce(zeros, name="w"))
        ranks[0].load_residuals({"w": owed})
        np.testing.assert_array_equal(ranks[0].residuals()["w"], owed)
        assert not ranks[1].residuals()["w"].any()
        for result in each(ranks, lambda c: c.all_reduce(zeros, name="w")):
            np.testing.assert_array_equal(result, owed / 2)
        assert not ranks[0].residuals()["w"].any(), "it is paid once"
        for result in each(ranks, lambda c: c.all_reduce(zeros, name="w")):
            assert not result.any()
        with pytest.raises(ValueError, match="no gradient 'v' yet"):
            ranks[0].load_residuals({"v": owed})
        with pytest.raises(ValueError, match="does not fit"):
            ranks[0].load_residuals({"w": owed[1:]})


def test_the_package_has_it() -> None:
    assert gradlane.Communicator is Communicator
