# SPDX-License-Identifier: Apache-2.0
"""Jobs without a global step: who averages with whom, how long steps take, and that averages are exact."""

import heapq
import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from gradlane.sync import DsSync, Ripples
from gradlane.sync.generator import Generator
from gradlane.sync.schedule import Partition, mixing_matrix
from gradlane_sim import partners
from gradlane_sim.carriers import Carrier, Gradlane
from gradlane_sim.document import document
from gradlane_sim.errors import SpecificationError
from gradlane_sim.fabrics import single
from gradlane_sim.groups import Asked, Groups, Scheduled, everyone
from gradlane_sim.program import DEFAULT
from gradlane_sim.specification import Fabric, Job, Queue, Specification, Tensor, ideal_time
from tests.sim.rivals import DCTCP, MARK, MS, run

PRIORITY = Queue("priority")
CARRIERS = {"gradlane": (Gradlane(), PRIORITY), "dctcp": (DCTCP, MARK)}
carried = pytest.mark.parametrize(("carrier", "queue"), CARRIERS.values(), ids=CARRIERS)
# Of an average of next to nothing among hosts at one switch, ns, at most.
NETWORK = MS // 2
COMPUTE = 200 * MS


def fabric(hosts: int, queue: Queue, loss: float = 0.0) -> Fabric:
    found = single(hosts, 1_000_000_000, 300_000, 1_000)
    return replace(found, queue=queue, links=tuple(replace(link, loss=loss) for link in found.links))


def averaged(
    carrier: Carrier,
    workers: int,
    groups: Groups,
    *,
    size: int = 44,
    steps: int = 6,
    compute: int = COMPUTE,
    **more: Any,
) -> Job:
    tensors = (Tensor(compute, size, 1), Tensor(compute, 44, 3))
    check = isinstance(carrier, Gradlane)
    return Job(
        1, tuple(range(workers)), carrier, tensors, steps=steps, compute=compute, groups=groups, check=check, **more
    )


def later(workers: int, steps: int, seed: int) -> tuple[tuple[int, ...], ...]:
    """Delays that differ by more than the network takes."""
    chance = np.random.default_rng(seed)
    return tuple(tuple(int(it) for it in row) for row in chance.integers(0, 2 * COMPUTE, (steps, workers)))


def only(result: dict[str, Any]) -> dict[str, Any]:
    (found,) = result["jobs"]
    assert found["error"] == ""
    assert result["violations"] == []
    return found


def lockstep(partitions: Sequence[Partition], delays: npt.NDArray[np.int64], delay: int) -> npt.NDArray[np.int64]:
    """When each worker is over, if the network takes no time: what max and plus make of who waits for whom."""
    begun = np.zeros(delays.shape[1], dtype=np.int64)
    done = begun.copy()
    for step, row in enumerate(delays):
        ready = np.maximum(begun + COMPUTE + row, done) if delay else begun + COMPUTE + row
        done = ready.copy()
        for group in partitions[step % len(partitions)]:
            done[list(group)] = ready[list(group)].max()
        begun = ready if delay else done
    return np.maximum(begun, done)


@carried
@pytest.mark.parametrize("delay", [0, 1])
@pytest.mark.parametrize("name", ["all", "grid", "pairs"])
def test_a_worker_waits_for_its_group_and_for_nobody_else(
    carrier: Carrier, queue: Queue, name: str, delay: int
) -> None:
    groups = everyone(7, delay) if name == "all" else partners.ds_sync(DsSync(name, delay), 7)
    late = later(7, 6, 5)
    found = only(run(fabric(7, queue), [averaged(carrier, 7, groups, delays=late)]))
    over = np.array(found["worker_ends"]) - lockstep(groups.partitions, np.array(late), delay)
    assert (over >= 0).all()
    assert (over < 6 * NETWORK).all()
    assert found["step_ends"][-1] == max(found["worker_ends"])


@dataclass
class Meeting:
    group: tuple[int, ...]
    came: set[int] = field(default_factory=set[int])
    waiting: list[int] = field(default_factory=list[int])


def asked(workers: int, groups: Asked, late: npt.NDArray[np.int64]) -> tuple[list[list[Any]], list[float]]:
    """The groups in which each worker averages, and when it has taken its steps, if the network takes no time. Each
    is a coroutine, which does as `sync/synchroniser.py` does, and asks the agent's generator."""
    now = 0.0
    generator = Generator(workers, groups.members, groups.slack, lambda: now / 1e9)
    joined: list[list[tuple[int, ...]]] = [[] for _ in range(workers)]
    ends = [0.0] * workers
    meetings: dict[tuple[tuple[int, ...], int], Meeting] = {}
    events: list[tuple[float, int]] = [(0.0, rank) for rank in range(workers)]

    def enter(rank: int, group: tuple[int, ...]) -> Meeting | None:
        if len(group) == 1:
            return None
        joined[rank].append(group)
        meeting = meetings.setdefault((group, joined[rank].count(group)), Meeting(group))
        meeting.came.add(rank)
        if meeting.came == set(group):
            for member in meeting.waiting:
                heapq.heappush(events, (now, member))
        return meeting

    def worker(rank: int) -> Iterator[float | Meeting | None]:
        average = None
        for step, row in enumerate(late):
            yield COMPUTE + float(row[rank])
            group = generator.ask(rank, step).group
            yield average
            average = enter(rank, group)
            if not groups.delay:
                yield average
        yield average
        ends[rank] = now
        while len(group := generator.pause(rank).group) > 1:
            yield enter(rank, group)

    programs = [worker(rank) for rank in range(workers)]
    while events:
        now, rank = heapq.heappop(events)
        for wants in programs[rank]:
            if isinstance(wants, float):
                heapq.heappush(events, (now + wants, rank))
                break
            if isinstance(wants, Meeting) and wants.came != set(wants.group):
                wants.waiting.append(rank)
                break
    return joined, ends


@carried
@pytest.mark.parametrize("delay", [0, 1])
def test_ripples_groups_are_those_of_the_generator_at_the_times_of_the_run(
    carrier: Carrier, queue: Queue, delay: int
) -> None:
    """Worker 2 is always slow."""
    groups = partners.ripples(Ripples(members=3, delay=delay), 8)
    late = np.array(later(8, 8, 11))
    late[:, 2] += 5 * COMPUTE
    delays = tuple(tuple(int(it) for it in row) for row in late)
    found = only(run(fabric(8, queue), [averaged(carrier, 8, groups, steps=8, delays=delays)]))
    joined: list[list[Any]] = [[] for _ in range(8)]
    for _, rank, tensor, _, _, members in sorted(found["operations"], key=lambda it: it[3]):
        if tensor == 0:
            joined[rank].append(tuple(members))
    expected, ends = asked(8, groups, late)
    assert joined == expected
    assert np.allclose(found["worker_ends"], ends, rtol=0, atol=20 * NETWORK)
    assert sum(map(len, joined)) > 4 * 8
    # The slow one takes its time, and the others do not take as much.
    others = np.delete(np.array(found["worker_ends"]), 2)
    assert others.mean() < 0.6 * found["worker_ends"][2]


@pytest.mark.parametrize("loss", [0.0, 0.02])
@pytest.mark.parametrize("name", ["grid", "pairs"])
def test_every_average_is_exact_and_a_turn_of_them_is_an_all_reduce(name: str, loss: float) -> None:
    groups = partners.ds_sync(DsSync(name), 8)
    turn = len(groups.partitions)
    # What the job tolerates does not count in groups.
    job = averaged(Gradlane(push=0.1), 8, groups, size=100_000, steps=turn, compute=MS)
    result = run(fabric(8, PRIORITY, loss), [job])
    found = only(result)
    assert (found["compared"], found["wrong"]) == (8 * turn * 2, 0)
    assert result["slices_missing"] == 0
    assert bool(sum(link["lost"] for link in result["links"])) == bool(loss)
    mixed = np.eye(8)
    for step in range(1, turn + 1):
        partition = {tuple(it[5]) for it in found["operations"] if it[0] == step}
        mixed = mixing_matrix(tuple(partition), 8) @ mixed
    assert np.allclose(mixed, 1 / 8, atol=1e-12)


@carried
def test_a_worker_sends_to_its_group_alone_and_each_part_once(carrier: Carrier, queue: Queue) -> None:
    groups = partners.ds_sync(DsSync("grid"), 6)
    size, steps = 600_000, 2
    result = run(fabric(6, queue), [averaged(carrier, 6, groups, size=size, steps=steps, compute=MS)])
    only(result)
    rows, columns = ((0, 1, 2), (3, 4, 5)), ((0, 3), (1, 4), (2, 5))
    assert groups.partitions == (rows, columns)
    pairs = Counter((a, b) for _, a, b, _, size, *_ in result["messages"] if size > 44)
    expected = Counter({(a, b): 2 for rank in (*rows, *columns) for a in rank for b in rank if a != b})
    assert set(pairs) >= set(expected) if isinstance(carrier, Gradlane) else pairs == expected
    assert {(a, b) for _, a, b, *_ in result["messages"]} == set(expected)
    # 2 (g - 1) / g of its bytes in a group of g.
    payload = np.array([size * (2 * 2 / 3 + 2 * 1 / 2)] * 6)
    sent = np.array([it["bytes"] for it in result["links"] if it["from"] < 6])
    assert (sent > payload).all()
    assert (sent < 1.2 * payload).all()


@carried
@pytest.mark.parametrize("delay", [0, 1])
def test_a_step_takes_little_more_than_its_groups_need(carrier: Carrier, queue: Queue, delay: int) -> None:
    groups = partners.ds_sync(DsSync("pairs", delay), 8)
    job = averaged(carrier, 8, groups, size=3_000_000, steps=4, compute=10 * MS)
    # Pairs send their bytes once, in 24 ms, and here all at once: after what is computed in 10 ms, or meanwhile.
    assert ideal_time(fabric(8, queue), job) == pytest.approx(0.024, rel=0.001)
    longer = replace(job, compute=20 * MS, tensors=tuple(replace(it, ready=20 * MS) for it in job.tensors))
    assert ideal_time(fabric(8, queue), longer) == pytest.approx(0.024 if delay else 0.032, rel=0.001)
    least = 0.010 + 4 * 0.024 if delay else 4 * 0.034
    took = only(run(fabric(8, queue), [job]))["step_ends"][-1] / 1e9
    # DCTCP's messages are whole ones: results follow contributions.
    assert least < took < (1.15 if isinstance(carrier, Gradlane) else 1.8) * least


def test_the_same_seed_gives_the_same_bits_although_workers_ask() -> None:
    groups = partners.ripples(Ripples(), 6)
    job = averaged(Gradlane(), 6, groups, size=50_000, delays=later(6, 6, 3))
    first, second = (run(fabric(6, PRIORITY, 0.01), [job]) for _ in range(2))
    for result in (first, second):
        del result["wall"]
    assert first == second


@pytest.mark.skipif(not DEFAULT.exists(), reason=f"{DEFAULT} is not built: `make sim` does it")
@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ("", "rank 0 asks for its group, and nobody answers"),
        ("[1, 2]", "rank 0 is not in the group that it was told"),
        ("[0, 9]", "a group must have ascending ranks, 0 to 5"),
        ("[1, 0]", "a group must have ascending ranks, 0 to 5"),
    ],
)
def test_answers_that_make_no_sense_end_the_run(answers: str, told: str) -> None:
    job = averaged(Gradlane(), 6, partners.ripples(Ripples(), 6))
    text = json.dumps(document(Specification(fabric(6, PRIORITY), (job,))))
    done = subprocess.run(
        [DEFAULT], input=f"{text}\n{answers}", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert told in json.loads(done.stderr.splitlines()[-1])["error"]


def test_ripples_has_as_many_workers_as_its_documentation_says() -> None:
    partners.ripples(Ripples(members=3), 29)
    partners.ripples(Ripples(members=2), 90)
    for members, workers in ((3, 30), (2, 91)):
        with pytest.raises(SpecificationError, match="it must be at most 4096"):
            partners.ripples(Ripples(members=members), workers)
    assert all(way.groups(min(way.most, 144)) for way in partners.SCHEMES.values())


def test_groups_that_make_no_sense_are_refused() -> None:
    for groups, message in (
        (Scheduled((((0, 1), (1, 2)),)), "each at most once"),
        (Scheduled((((0, 6),),)), "from 0 to 5"),
        (Scheduled(()), "1 or more"),
        (Scheduled((((0, 1),),), 2), "0 or 1"),
        (Asked(1, 0), "2 or more"),
        (Asked(2, -1), "0 or more"),
    ):
        with pytest.raises(SpecificationError, match=message):
            averaged(Gradlane(), 6, groups)
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"algorithm": "stragglar"}, "can't be stragglar"),
        ({"weights": (1,) * 6}, "no groups"),
        ({"servers": 1}, "no servers"),
    )
    for settings, message in refused:
        with pytest.raises(SpecificationError, match=message):
            averaged(Gradlane(), 6, everyone(5), **settings)
    with pytest.raises(SpecificationError, match="ready when all is computed"):
        Job(1, (0, 1), Gradlane(), (Tensor(0, 44, 1),), compute=MS, groups=everyone(2))
