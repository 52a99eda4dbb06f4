# SPDX-License-Identifier: Apache-2.0
"""Half of all datagrams lost, old ones that come much later, a switch that forgets or stops, late workers: all ends."""

from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gradlane.wire import Lanes
from tests.gradlane.core.protocol.network import Impairment
from tests.gradlane.core.sums.summing import GENERATION, Summed, Tensor
from tests.gradlane.core.sums.test_fall_back import Training
from tests.support.effort import tries

OVERDUE = 250_000  # us


@dataclass(frozen=True)
class Storm:
    """What begins after `us`. `late`: a worker that begins no step until the next storm."""

    us: int
    restart: bool
    broken: bool
    late: int | None


storms = st.lists(
    st.builds(Storm, st.integers(0, 400_000), st.booleans(), st.booleans(), st.none() | st.integers(0, 3)), max_size=4
)
networks = st.builds(
    Impairment,
    loss=st.sampled_from([0.0, 0.05, 0.5]),
    duplicate=st.sampled_from([0.0, 0.3]),
    jitter=st.sampled_from([100, 5_000, 300_000]),
)


class Leader:
    """Has all halt when a sum is overdue, as the agents do, remind the switch, and the next time go on by hosts."""

    def __init__(self, training: Training) -> None:
        self.training, self.generation, self.falls = training, GENERATION, 0
        self.reminded: list[int] = []  # sums that each had got by then

    def look(self) -> None:
        """Halts them if need be; two steps after hosts have taken over the switch is used again."""
        training, cluster = self.training, self.training.cluster
        if max(cluster.overdue(rank) for rank in range(cluster.workers)) < OVERDUE:
            return
        begun = [{t: state for t, *state in cluster.state(rank)} for rank in range(cluster.workers)]
        stuck = any(all(row[t][1] > min(r[t][0] for r in begun) for row in begun) for t in begun[0])
        received = [cluster.statistics(rank).sums_received for rank in range(cluster.workers)]
        if not stuck or received != self.reminded:  # somebody is late, or the switch may be
            training.give_up(self.generation, by_switch=True)
            self.reminded = received
            return
        self.falls += 1
        training.give_up((self.generation + 1) & 0xFFFFFFFF)
        self.generation = (self.generation + 2) & 0xFFFFFFFF
        first = max(max(row) for row in training.step) + 2
        training.generation[first:] = [self.generation] * (training.steps + 1 - first)


def weather(cluster: Summed, shapes: list[list[int]], happenings: list[Storm], steps: int) -> Leader:
    """Trains until all steps are complete at all, and checks the sums and the budgets."""
    training = Training(cluster, [Tensor(number, parts) for number, parts in enumerate(shapes)], steps)
    leader = Leader(training)

    def run(us: int) -> bool:
        done = False
        for _ in range(0, us, 50_000):
            done = cluster.run_for(min(us, 50_000), training.go_on)
            leader.look()
        return done

    for storm in [*happenings, Storm(400_000, restart=False, broken=False, late=None)]:
        run(storm.us)
        if storm.restart:
            cluster.restart()
        cluster.broken = storm.broken
        now = max(max(row) for row in training.step)
        training.last = [now if rank == storm.late else steps for rank in range(cluster.workers)]
    assert any(run(200_000) for _ in range(300)), "it does not end"
    training.check_sums()
    cluster.check_budgets()
    return leader


@settings(max_examples=tries(20), deadline=None)
@given(
    st.integers(2, 4),
    st.lists(st.lists(st.integers(1, 300), min_size=1, max_size=2), min_size=1, max_size=2),
    st.sampled_from(Lanes),
    networks,
    storms,
    st.sampled_from([0.0, 0.1, 0.5]),
    st.integers(0, 2**32),
)
# Who helps to do a step again is at it still when the others, who have the result, are to do a later one again.
@example(2, [[69, 69]], Lanes.INT16_LANES, Impairment(loss=0.5, jitter=5_000), [], 0.0, 1)
def test_all_steps_end_alike_and_nothing_is_lost(
    workers: int,
    shapes: list[list[int]],
    lanes: Lanes,
    network: Impairment,
    happenings: list[Storm],
    budget: float,
    seed: int,
) -> None:
    cluster = Summed(workers, lanes=lanes, impairment=network, seed=seed, loss=budget)
    leader = weather(cluster, shapes, happenings, steps=10)
    fails = any(storm.restart or storm.broken for storm in happenings)
    if not budget and not fails and network.loss == 0 and network.jitter < 10_000:
        assert leader.falls == 0
