# SPDX-License-Identifier: Apache-2.0
"""How a tensor is cut for shards, and which socket a datagram goes to."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradlane import job as jobs
from gradlane.datapath import steering
from gradlane.datapath.shard import LEAST_BYTES, parts
from gradlane.job import partition
from gradlane.job.agreement import MAX_SHARDS
from gradlane.wire import Header

WORKERS = "".join(f'[[worker]]\nrank = {k}\nhost = "h{k}"\naddress = "10.0.0.{k + 1}"\n' for k in range(3))
SERVER = '[[server]]\nrank = 3\nhost = "s"\naddress = "10.0.0.9"\n'


@given(
    number=st.integers(0, 4000),
    elements=st.integers(1, 1 << 24),
    item=st.sampled_from([1, 2, 4, 8]),
    slice_bytes=st.integers(8, 1117).map(lambda n: 8 * n),
    shards=st.integers(1, MAX_SHARDS),
)
def test_parts_are_all_of_a_tensor_in_whole_slices_on_shards_of_their_own(
    number: int, elements: int, item: int, slice_bytes: int, shards: int
) -> None:
    per_slice = slice_bytes // item
    found = parts(number, elements, item, per_slice, shards)
    assert [first for _, first, _ in found] == [sum(count for *_, count in found[:k]) for k in range(len(found))]
    assert sum(count for *_, count in found) == elements
    assert len({shard for shard, *_ in found}) == len(found)
    assert all(0 <= shard < shards for shard, *_ in found)
    assert found[0][0] == number % shards
    assert all(first % per_slice == 0 and count > 0 for _, first, count in found)
    assert len(found) == max(1, min(shards, elements * item // LEAST_BYTES))


@given(
    elements=st.integers(1, 1 << 21),
    shards=st.integers(1, MAX_SHARDS),
    push=st.floats(0, 0.5),
    starts=st.sets(st.integers(1, 1 << 21), max_size=12),
)
def test_the_budgets_of_parts_are_no_more_than_the_tensors(
    elements: int, shards: int, push: float, starts: set[int]
) -> None:
    spans = [(0, 0), *((start, k + 1) for k, start in enumerate(sorted(starts)) if start < elements)]
    per_slice, owners = 358, 3
    tolerated: Any = jobs.parse(f'[job]\nname = "n"\nid = 1\n{WORKERS}[transport]\nrate = "1gbit"', "f").loss
    tolerated = type(tolerated)(**{**vars(tolerated), "push": push})
    lost = 0
    for _, first, count in parts(0, elements, 4, per_slice, shards):
        cut = partition.cut(spans, first, count)
        partition.check_spans(cut, count)
        divided = partition.divide(cut, count, tolerated, False, per_slice, 1432, owners, False)
        for one in divided:
            slices = -(-one.elements // per_slice)
            lost += sum(math.floor(push * (slices * (k + 1) // owners - slices * k // owners)) for k in range(owners))
        # Each slice has the layer that it has in the whole tensor.
        layers = partition.layers(cut, divided, per_slice)
        whole = partition.layers(
            spans, [partition.Partition(first + p.first, p.elements, 0, 0) for p in divided], per_slice
        )
        assert layers.tolist() == whole.tolist()
    assert lost <= push * -(-elements // per_slice)


@pytest.mark.parametrize(
    ("lines", "cut"),
    [
        ("", True),
        ("[loss]\npush = 0.01\n[[loss.classes]]\nlayers = [0, 3]\npush = 0.0\npull = 0.0", True),
        ('collective = "ring"', True),
        ('ownership = "adaptive"', False),
        ("ownership = [1, 2, 3]", False),
        ('multicast = "239.1.0.1"', False),
        ('multicast = "239.1.0.1"\nwire = "int16"', False),
        ("[loss]\npush = 0.02\n[loss.late]\nafter = 0.5\nsteps = 1\nwindow = 4", False),
        ("[loss]\npush = 0.02\n[loss.adaptive]\ncritical = 0.5\nthreshold = 0.5\nwindow = 3", False),
        (SERVER, False),
        ('[sync]\nscheme = "ad-psgd"', True),
    ],
)
def test_what_concerns_all_tensors_at_once_has_one_shard(lines: str, cut: bool) -> None:
    text = f'[job]\nname = "n"\nid = 1\n{WORKERS}[transport]\nrate = "1gbit"\n{lines}'
    assert jobs.parse(text, "job.toml").can_be_cut == cut


def run(program: list[tuple[int, int, int, int]], datagram: bytes) -> int:
    """What the kernel does with it. A load from behind the end ends it with 0."""
    a = x = at = 0
    while True:
        code, true, false, constant = program[at]
        at += 1
        if code in (0x20, 0x28):
            size = 4 if code == 0x20 else 2
            if constant + size > len(datagram):
                return 0
            a = int.from_bytes(datagram[constant : constant + size], "big")
        elif code == 0x54:
            a &= constant
        elif code == 0x64:
            a <<= constant
        elif code == 0x4C:
            a |= x
        elif code == 0x07:
            x = a
        elif code == 0x15:
            at += true if a == constant else false
        else:
            assert code == 0x06
            return constant


@given(
    places=st.dictionaries(
        st.tuples(st.integers(1, 65535), st.integers(0, (1 << 64) - 1)), st.integers(0, MAX_SHARDS - 1), max_size=20
    ),
    length=st.integers(0, 60),
)
def test_a_datagram_is_steered_by_job_and_token(places: dict[tuple[int, int], int], length: int) -> None:
    by_key = {steering.key_of(job, token): place for (job, token), place in places.items()}
    program = steering.program(by_key)
    for job, token in [*places, (9, 9)]:
        header = Header(**dict.fromkeys(Header.__dataclass_fields__, 0) | {"job": job, "token": token})
        datagram = header.pack() + bytes(20)
        assert run(program, datagram) == by_key.get(steering.key_of(job, token), 0)
        if length < 36:
            assert run(program, datagram[:length]) == 0


def test_the_kernel_takes_the_program_of_as_many_jobs_as_an_agent_may_have() -> None:
    jobs_at_most, shards = 256, MAX_SHARDS
    places = {steering.key_of(1 + job, shard): shard for job in range(jobs_at_most) for shard in range(shards)}
    assert len(steering.program(places)) <= steering.MOST_INSTRUCTIONS
