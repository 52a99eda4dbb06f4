# SPDX-License-Identifier: Apache-2.0
"""What a rank does in the tests of the backend: every collective on gradlane and on Gloo, side by side."""

import itertools
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist

import gradlane.torch  # noqa: F401 - registers the backend
from tests.gradlane.torch.ranks import process_group

FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int32, torch.int64, torch.int8, torch.uint8]


def values(rank: int, size: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """Small integers, so that the order of a sum does not show; another tensor on each rank."""
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    return torch.randint(1, 4, (size,), generator=generator).to(dtype)


def both(groups: dict[str, Any], act: Any) -> None:
    """`act` of each group gives a list of tensors; they must agree."""
    results = {name: act(group) for name, group in groups.items()}
    for ours, expected in itertools.zip_longest(results["gradlane"], results["gloo"]):
        assert ours.dtype == expected.dtype
        assert torch.equal(ours, expected), (ours, expected)


def reductions(groups: dict[str, Any], rank: int, size: int) -> None:
    """all_reduce, reduce and reduce_scatter of all types."""
    op = dist.ReduceOp
    for dtype, operation in itertools.product(FLOATS + INTEGERS, [op.SUM, op.MIN, op.MAX, op.PRODUCT]):

        def all_reduce(group: Any, dtype: Any = dtype, operation: Any = operation) -> list[torch.Tensor]:
            tensor = values(rank, 1001, dtype).view(7, 143).t()  # not contiguous
            dist.all_reduce(tensor, operation, group=group)
            return [tensor]

        both(groups, all_reduce)

    whole = values(rank, 100, torch.float32)  # Gloo takes it for contiguous
    dist.all_reduce(whole[::2], group=groups["gradlane"])
    dist.broadcast(whole[1::2], 1, group=groups["gradlane"])
    assert torch.equal(whole[::2], sum(values(r, 100, torch.float32) for r in range(size))[::2])
    assert torch.equal(whole[1::2], values(1, 100, torch.float32)[1::2])

    def of_bool(group: Any) -> list[torch.Tensor]:
        tensor = values(rank, 100, torch.int32) == 1
        both = [tensor.clone(), tensor.clone()]
        dist.all_reduce(both[0], op.MAX, group=group)
        dist.all_reduce(both[1], op.MIN, group=group)
        return both

    both(groups, of_bool)
    mean = values(rank, 100, torch.float32)
    dist.all_reduce(mean, op.AVG, group=groups["gradlane"])
    torch.testing.assert_close(mean, sum(values(r, 100, torch.float32) for r in range(size)) / size)
    integers = [5 * values(r, 30 * size, torch.int32) - 9 for r in range(size)]  # -4, 1 and 6
    expected = torch.tensor([int(it / size) for it in torch.stack(integers).sum(0).tolist()], dtype=torch.int32)
    assert expected.min() < 0 < expected.max()
    means, part = [integers[rank].clone() for _ in range(2)], torch.empty(30, dtype=torch.int32)
    dist.all_reduce(means[0], op.AVG, group=groups["gradlane"])
    dist.reduce(means[1], size - 1, op.AVG, group=groups["gradlane"])
    dist.reduce_scatter_tensor(part, integers[rank], op.AVG, group=groups["gradlane"])
    assert torch.equal(means[0], expected)  # towards zero
    assert torch.equal(means[1], expected if rank == size - 1 else integers[rank])
    assert torch.equal(part, expected.chunk(size)[rank])

    def reduce(group: Any) -> list[torch.Tensor]:
        tensor = values(rank, 55, torch.float32)
        dist.reduce(tensor, size - 1, group=group)
        return [tensor] if rank == size - 1 else []

    both(groups, reduce)

    def reduce_scatter(group: Any) -> list[torch.Tensor]:
        outputs = [torch.empty(30), torch.empty(30)]
        dist.reduce_scatter(outputs[0], list(values(rank, 30 * size, torch.float32).chunk(size)), group=group)
        dist.reduce_scatter_tensor(outputs[1], values(rank, 30 * size, torch.float32), group=group)
        return outputs

    both(groups, reduce_scatter)

    def coalesced(group: Any) -> list[torch.Tensor]:
        tensors = [values(rank, n, torch.float32, n) for n in (3, 50, 1)]
        dist.all_reduce_coalesced(tensors, group=group)
        return tensors

    both(groups, coalesced)


def copies(groups: dict[str, Any], rank: int, size: int) -> None:
    """What moves values without changing them, of types that are not reduced, too."""
    types = [*FLOATS, *INTEGERS, torch.int16, torch.bool, torch.complex64]
    for dtype in types:

        def gathered(group: Any, dtype: Any = dtype) -> list[torch.Tensor]:
            tensor = values(rank, 33, dtype)
            parts = [torch.empty(33, dtype=dtype) for _ in range(size)]
            dist.all_gather(parts, tensor, group=group)
            return parts

        if dtype in (torch.int16, torch.complex64, torch.bool):
            ours = gathered(groups["gradlane"])
            assert all(torch.equal(part, values(r, 33, dtype)) for r, part in enumerate(ours))
        else:
            both(groups, gathered)

    def broadcast(group: Any) -> list[torch.Tensor]:
        tensor = values(rank, 10_000, torch.float32)
        scalar = torch.tensor(rank)
        dist.broadcast(tensor, size - 1, group=group)
        dist.broadcast(scalar, 0, group=group)
        return [tensor, scalar]

    def into_tensor(group: Any) -> list[torch.Tensor]:
        output = torch.empty(size * 9)
        dist.all_gather_into_tensor(output, values(rank, 9, torch.float32), group=group)
        return [output]

    def gather_scatter(group: Any) -> list[torch.Tensor]:
        parts = [torch.empty(9) for _ in range(size)] if rank == 0 else None
        dist.gather(values(rank, 9, torch.float32), parts, 0, group=group)
        mine = torch.empty(4)
        dist.scatter(mine, [values(r, 4, torch.float32, 7) for r in range(size)] if rank == 1 else None, 1, group=group)
        return [mine, *(parts or [])]

    def all_to_all(group: Any) -> list[torch.Tensor]:
        even, uneven = torch.empty(size * 3), torch.empty(sum(r + 1 for r in range(size)) if rank else 0)
        dist.all_to_all_single(even, values(rank, size * 3, torch.float32), group=group)
        # Rank s sends s + 1 values to everyone but rank 0.
        sent = values(rank, (size - 1) * (rank + 1), torch.float32)
        received = [r + 1 if rank else 0 for r in range(size)]
        dist.all_to_all_single(uneven, sent, received, [0, *[rank + 1] * (size - 1)], group=group)
        return [even, uneven]

    def neighbours(group: Any) -> list[torch.Tensor]:
        received = [torch.empty(1000), torch.empty(5)]
        works = [
            dist.irecv(received[0], (rank - 1) % size, group=group, tag=1),
            dist.irecv(received[1], (rank - 1) % size, group=group, tag=2),
            dist.isend(values(rank, 5, torch.float32), (rank + 1) % size, group=group, tag=2),
            dist.isend(values(rank, 1000, torch.float32), (rank + 1) % size, group=group, tag=1),
        ]
        for work in works:
            assert work is not None
            work.wait()
        return received

    def objects(group: Any) -> list[torch.Tensor]:
        found: list[Any] = [None] * size
        dist.all_gather_object(found, {"rank": rank}, group=group)
        return [torch.tensor([one["rank"] for one in found])]

    for act in (broadcast, into_tensor, gather_scatter, all_to_all, neighbours, objects):
        both(groups, act)
    parts = [torch.empty(r + 1) for r in range(size)]
    dist.all_to_all(parts, [values(rank, rank + 1, torch.float32, r) for r in range(size)], group=groups["gradlane"])
    assert all(torch.equal(part, values(r, r + 1, torch.float32, rank)) for r, part in enumerate(parts))


def asynchronous(groups: dict[str, Any], rank: int, size: int) -> None:
    """Many in flight at once; futures; a subgroup; what is refused."""
    group = groups["gradlane"]
    tensors = [torch.full((100,), float(rank + k)) for k in range(20)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in tensors]
    future = works[-1].get_future().then(lambda done: done.value()[0] * 2)
    expected = [float(sum(r + k for r in range(size))) for k in range(20)]
    assert torch.equal(future.wait(), torch.full((100,), 2 * expected[-1]))
    for work, tensor, number in zip(works, tensors, expected, strict=True):
        work.wait()
        assert work.is_completed()
        assert torch.equal(tensor, torch.full((100,), number))
    pair = dist.new_group([0, 1])
    other = dist.new_group([0, 1])
    if rank < 2:
        one, two = torch.ones(3), torch.ones(4) * 5
        work = dist.all_reduce(one, group=pair, async_op=True)
        dist.all_reduce(two, group=other)
        work.wait()
        assert (one.sum(), two.sum()) == (6, 40)
        tensor = torch.tensor([float(rank)])
        dist.broadcast(tensor, 1, group=pair)
        assert tensor.item() == 1
    dist.barrier(group=group)
    dist.all_reduce(torch.empty(0), group=group)
    with pytest.raises(ValueError, match="convert to one of float32"):
        dist.all_reduce(torch.ones(1, dtype=torch.int16), group=group)
    with pytest.raises(ValueError, match=r"AVG of numbers.*use a group of Gloo"):
        dist.all_reduce(torch.ones(1, dtype=torch.bool), dist.ReduceOp.AVG, group=group)
    with pytest.raises(ValueError, match="needs the sender's rank"):
        dist.recv(torch.ones(1), group=group)


def threads_for_callbacks(rank: int, size: int, folder: str) -> tuple[bool, bool, list[float]]:
    """Whether there is one after an all-reduce that is waited for at once, and after another; and what came."""
    with process_group("gradlane", rank, size, folder):
        tensor, found = torch.ones(3), list[bool]()
        for later in (False, True):
            work = dist.all_reduce(tensor, async_op=later)
            if work is not None:
                work.wait()
            found.append(any(thread.name == "gradlane-completions" for thread in threading.enumerate()))
        return found[0], found[1], tensor.tolist()


def all_of_them(rank: int, size: int, folder: str) -> None:
    """With both backends in one process."""
    with process_group("gradlane", rank, size, folder):
        groups = {"gradlane": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
        reductions(groups, rank, size)
        copies(groups, rank, size)
        asynchronous(groups, rank, size)
