# SPDX-License-Identifier: Apache-2.0
"""What may happen to a job on a switch that sums, as hypothesis draws it, and a player of that."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from hypothesis import strategies as st

from gradlane import wire
from tests.gradlane.sums.fabric import shapes
from tests.gradlane.sums.oracle import Layout
from tests.gradlane.sums.summing_job import JOB, SummingJob
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
    cut: int | None  # the rank of whose contributions most are lost
    seed: int
    away: int | None = None  # the rank whose process comes to no step meanwhile, though its agent does its work


RESTART, MOVE, HALT, FALSE_ALARM, PLAN, FORGE, ECHO, DIE = Events = (
    "restart", "move", "halt", "false alarm", "plan", "forge", "echo", "die",
)  # fmt: skip

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
    shape=st.sampled_from(list(shapes(2))),
    push=st.sampled_from([Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(4, 5)]),
)
# As jobs of more workers than bits have it, whatever their number is; these are exact.
large = st.builds(
    lambda it, workers: replace(it, workers=workers, lanes=wire.Lanes.INT32_LANES, push=Fraction(0), by_children=True),
    layouts, st.integers(2, 6),
)  # fmt: skip
shares = st.sampled_from([0.0, 0.0, 0.05, 0.2, 0.5])
weathers = st.builds(
    Weather,
    moves=st.integers(1, 120),
    lost=shares,
    twice=shares,
    reordered=st.sampled_from([0.0, 0.1, 1.0]),
    late=st.none() | st.integers(0, 3),
    cut=st.none() | st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
schedules = st.lists(weathers | st.sampled_from(Events[:-1]), min_size=3, max_size=14) | st.lists(
    weathers | st.sampled_from(Events), min_size=3, max_size=6
)
harmless = (FALSE_ALARM, FORGE, ECHO)
calm = st.lists(weathers | st.sampled_from(harmless), min_size=3, max_size=14)  # no switch fails

# Much is lost of long messages with large budgets: many slices are closed.
tolerant = st.builds(
    Layout,
    workers=st.integers(2, 4),
    window=st.sampled_from([2, 4]),
    partitions=st.sampled_from([((8,),), ((5, 4),), ((7,), (3,))]),
    elements=st.just(1),
    done=st.sampled_from([0, 2**32 // 3 - 2]),
    shape=st.sampled_from(list(shapes(2))),
    push=st.sampled_from([Fraction(1, 2), Fraction(4, 5)]),
)
losing = st.builds(
    Weather,
    moves=st.integers(40, 400),
    lost=st.sampled_from([0.1, 0.3, 0.5]),
    twice=shares,
    reordered=st.sampled_from([0.0, 0.1, 1.0]),
    late=st.none(),
    cut=st.none() | st.integers(0, 3),
    seed=st.integers(0, 2**32),
)
rough = st.lists(losing | st.sampled_from(harmless), min_size=3, max_size=6)


def leaving(of: st.SearchStrategy[Layout]) -> st.SearchStrategy[Layout]:
    """Steps go on without late workers."""
    return st.builds(replace, of, late=st.sampled_from([(1, 2), (1, 3), (2, 3), (2, 4)]))  # pyright: ignore


def away(of: st.SearchStrategy[list[Weather | str]]) -> st.SearchStrategy[list[Weather | str]]:
    """Meanwhile some process is late."""
    return st.builds(
        lambda schedule, ranks: [
            replace(it, away=rank) if isinstance(it, Weather) else it for it, rank in zip(schedule, ranks, strict=False)
        ],
        of, st.lists(st.integers(0, 3), min_size=14, max_size=14),
    )  # fmt: skip


def play(
    layout: Layout,
    schedule: list[Weather | str],
    switch: Callable[[], SumSwitch] = SumSwitch,
    worker: Callable[..., Worker] = Worker,
    seed: int = 0,
) -> SummingJob:
    """Lets it happen to a job, and then all steps end, with the tables of all switches alike again. Raises Wrong if a
    promise is broken."""
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
        elif happening == DIE:
            job.dead.add(job.random.randrange(layout.workers))
        elif happening == ECHO:
            job.echo()
        elif happening == MOVE:
            job.move()
        elif happening in (HALT, FALSE_ALARM):
            job.halt()
            for rank in 2 * list(range(layout.workers)):
                job.heed(rank, suspects=happening == HALT)
        elif happening == PLAN:
            job.plan()
        else:
            job.forge()
    job.fabric.agree()
    job.settle(STEPS)
    return job


def _pass(job: SummingJob, weather: Weather) -> None:
    random = job.random
    random.seed(weather.seed)
    tensors = range(len(job.layout.partitions))
    for _ in range(weather.moves):
        rank, tensor = random.randrange(job.layout.workers), random.choice(tensors)
        if rank != weather.late and rank not in job.dead:
            job.heed(rank)
            job.do_again(rank)
            job.by_hosts(rank, tensor)
            if job.layout.late[0] and random.random() < 0.5:
                job.go_on(rank, tensor)
                job.stand_in(rank, tensor)
            if rank != weather.away:
                job.begin(rank, tensor, STEPS)
            job.send(rank, tensor)
            if random.random() < 0.3:
                job.repair(rank, tensor, leave_out=random.choice((-1, -1, random.getrandbits(4))))
        for _ in range(min(len(job.network), random.randint(0, 3))):
            index = random.randrange(len(job.network)) if random.random() < weather.reordered else 0
            lost = 0.8 if job.network[index].by == weather.cut else weather.lost
            job.deliver(index, lost=random.random() < lost, again=random.random() < weather.twice)
