# SPDX-License-Identifier: Apache-2.0
"""What may happen to a job on a switch that sums, as hypothesis draws it, and a player of that."""

from collections.abc import Callable
from dataclasses import dataclass

from hypothesis import strategies as st

from gradlane import wire
from tests.gradlane.sums.summing_job import JOB, Layout, SummingJob
from tests.support.sum_switch import SumSwitch
from tests.support.sum_worker import Worker

STEPS = 5


@dataclass(frozen=True)
class Weather:
    """Some moves, and what the network does meanwhile: parts of the packets that are lost, come twice, and overtake."""

    moves: int
    lost: float
    twice: float
    reordered: float
    late: int | None  # the rank that does nothing meanwhile
    seed: int


RESTART, HALT, FALSE_ALARM, PLAN, FORGE = Events = ("restart", "halt", "false alarm", "plan", "forge")

layouts = st.builds(
    Layout,
    workers=st.integers(2, 4),
    lanes=st.sampled_from(wire.Lanes),
    window=st.sampled_from([1, 2, 4]),
    partitions=st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=2).map(tuple), min_size=1, max_size=2).map(
        tuple
    ),
    # Step 2^31 - 1 comes soon, and with a tensor of some slices the numbers wrap.
    done=st.sampled_from([0, 7, 2**32 // 3 - 2, 2**31 // 5 - 3, 2**32 // 4 - 1]),
    generation=st.sampled_from([1, 5, 2**31 - 1, 2**32 - 4]),
)
shares = st.sampled_from([0.0, 0.0, 0.05, 0.2, 0.5])
weathers = st.builds(
    Weather,
    moves=st.integers(1, 120),
    lost=shares,
    twice=shares,
    reordered=st.sampled_from([0.0, 0.1, 1.0]),
    late=st.none() | st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
schedules = st.lists(weathers | st.sampled_from(Events), min_size=3, max_size=14)
calm = st.lists(weathers | st.sampled_from((FALSE_ALARM, FORGE)), min_size=3, max_size=14)  # the switch never fails


def play(
    layout: Layout,
    schedule: list[Weather | str],
    switch: SumSwitch | None = None,
    worker: Callable[..., Worker] = Worker,
    seed: int = 0,
) -> SummingJob:
    """Lets it happen to a job, and then all steps end. Raises Wrong if a promise is broken."""
    job = SummingJob(layout, switch, worker, seed)
    first = layout.done * sum(layout.partitions[0])
    for ahead in range(-4, 12):  # an earlier run of the job, and another job, have used the slots
        job.leave_behind(*job.random.choice([(JOB, layout.generation - 1), (3, job.random.getrandbits(32))]),
                         first + ahead & 0xFFFFFFFF)  # fmt: skip
    for happening in schedule:
        if isinstance(happening, Weather):
            _pass(job, happening)
        elif happening == RESTART:
            job.restart()
        elif happening in (HALT, FALSE_ALARM):
            job.halt()
            for rank in 2 * list(range(layout.workers)):
                job.heed(rank, suspects=happening == HALT)
        elif happening == PLAN:
            job.plan()
        else:
            job.forge()
    job.settle(STEPS)
    return job


def _pass(job: SummingJob, weather: Weather) -> None:
    random = job.random
    random.seed(weather.seed)
    tensors = range(len(job.layout.partitions))
    for _ in range(weather.moves):
        rank, tensor = random.randrange(job.layout.workers), random.choice(tensors)
        if rank != weather.late:
            job.heed(rank)
            job.by_hosts(rank, tensor)
            job.begin(rank, tensor, STEPS)
            job.send(rank, tensor)
            if random.random() < 0.2:
                job.repair(rank, tensor)
        for _ in range(min(len(job.network), random.randint(0, 3))):
            index = random.randrange(len(job.network)) if random.random() < weather.reordered else 0
            job.deliver(index, lost=random.random() < weather.lost, again=random.random() < weather.twice)
