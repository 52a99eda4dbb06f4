# SPDX-License-Identifier: Apache-2.0
"""Random frames through random policies, on each switch, against a model of the whole policy in Python."""

from collections import Counter
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gradlane import wire
from tests.p4src.model.model_packet import timeless
from tests.p4src.model.policy_entries import Policy
from tests.p4src.model.policy_model import Copy, Model, Outcome
from tests.p4src.model.random_policies import frames, incast, policies
from tests.p4src.packet_bench import ORDINARY_REASONS, Bench, Count, Reason, Way
from tests.p4src.packet_targets import CPU_PORT, Bmv2, InProcess, Sent
from tests.support.effort import tries

Step = tuple[tuple[int, bytes], int, int]
seeds = st.integers(0, 2**64 - 1).map(Random)
# A frame, how often it comes, and ns before it.
steps = st.lists(
    st.tuples(
        st.one_of(seeds.map(frames), seeds.map(incast)),
        st.integers(1, 5),
        st.sampled_from([0, 0, 0, 0, 1_000, 20_000_001, 150_000_000, 2_000_000_000]),
    ),
    min_size=20,
    max_size=40,
)
RATES = (1, 300, 10_000)
TRACE_RECORD = 16  # bytes
_IPV4_FLAGS = 14 + 20 + 8 + 14  # where the byte of a gradient's flags is
USUAL = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    # Seeds do not shrink.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def as_told(sent: Sent, wanted: Outcome) -> Copy:
    """A copy as the model tells it: depth and wait of a trace's newest record are not its business."""
    frame = timeless(sent.frame) if wanted.trace else sent.frame
    queue = next((copy.queue for copy in wanted.copies if copy.port == sent.port), 0)
    return Copy(sent.port, queue if sent.queue is None else sent.queue, frame)


def not_to_be_summed(frame: bytes) -> bytes:
    """Without the flag that makes it a contribution: what becomes of those is not this model's business."""
    at = {b"\x08\x00": _IPV4_FLAGS, b"\x86\xdd": _IPV4_FLAGS + 20}.get(frame[12:14], len(frame))
    return frame[:at] + bytes(byte & ~wire.Flag.SUM for byte in frame[at : at + 1]) + frame[at + 1 :]


def way_of(sent: Sent, wanted: Outcome) -> Way:
    """What a frame that leaves counts as."""
    if wanted.decision[1].name.startswith("TRIMMED"):
        return Way["TRIMMED_IPV4" if sent.frame[12:14] == b"\x08\x00" else "TRIMMED_IPV6"]
    return Way["TREE" if wanted.multicast else "PATH"]


def check(bench: Bench, policy: Policy, sequence: list[Step], clock: InProcess | None) -> Counter[Reason]:
    """Runs a sequence; the clock is set where the target has one."""
    bench.install(policy.entities())
    model = Model(policy)
    decisions: Counter[tuple[int, Reason, int, int]] = Counter()
    left, octets = Counter[tuple[int, Way, int]](), Counter[tuple[int, Way, int]]()
    now = 0
    for (port, frame), times, later in sequence:
        if clock is not None:
            now = clock.switch.now = clock.switch.now + later
        for _ in range(times):
            wanted = model.process(port, frame, now)
            copies = bench.process(port, frame)
            told = [it for it in copies if it.port == CPU_PORT]
            assert [(it.frame, it.reason, it.ingress_port) for it in told] == (
                [(frame, wanted.decision[1], port)] if wanted.punted else []
            ), wanted
            found = sorted(as_told(it, wanted) for it in copies if it.port != CPU_PORT)
            assert found == sorted(wanted.copies), (port, frame.hex(), wanted.decision)
            decisions[wanted.decision] += 1
            for it in (it for it in copies if it.port != CPU_PORT):
                place = it.port, way_of(it, wanted), as_told(it, wanted).queue
                left[place] += 1
                octets[place] += len(it.frame) - TRACE_RECORD * wanted.trace  # which the counter does not know of
    assert bench.departures() == {place: Count(left[place], octets[place]) for place in left}
    counted = {key: count.packets for key, count in bench.decision_cells(0, 1, 2, 3).items()}
    assert counted == decisions
    assert {key: count.packets for key, count in bench.drop_map().items()} == model.drops
    reasons: Counter[Reason] = Counter()
    for (_, reason, _, _), count in decisions.items():
        reasons[reason] += count
    return reasons


@pytest.mark.parametrize("profile", ["in_process", "sum_in_process"])
def test_gradlane_switch_decides_every_random_sequence_as_the_model_does(
    profile: str, request: pytest.FixtureRequest, schema
) -> None:
    target: InProcess = request.getfixturevalue(profile)
    bench = Bench(target, schema)

    # Where the profile that sums differs, p4src/sums has tests.
    @settings(USUAL, max_examples=tries(12 if profile == "in_process" else 4))
    @given(seeds.map(lambda random: policies(random, RATES)), steps)
    def run(policy: Policy, sequence: list[Step]) -> None:
        if profile == "sum_in_process":
            sequence = [((port, not_to_be_summed(frame)), *times) for (port, frame), *times in sequence]
        check(bench, policy, sequence, target)

    run()


def test_random_frames_reach_every_decision(in_process: InProcess, schema) -> None:
    """Always the same ones."""
    bench = Bench(in_process, schema)
    reached: Counter[Reason] = Counter()
    for seed in range(40):
        random = Random(seed)
        sequence = [((incast if n % 2 else frames)(random), random.randint(1, 5), 0) for n in range(40)]
        reached.update(check(bench, policies(random, RATES), sequence, in_process))
        if reached.keys() >= set(ORDINARY_REASONS):
            break
    assert set(ORDINARY_REASONS) - set(reached) == set()


def test_bmv2_decides_every_random_sequence_as_the_model_does(bmv2: Bmv2, schema) -> None:
    """Without rates: its clock runs."""
    bench = Bench(bmv2, schema)

    @settings(USUAL, max_examples=tries(10))
    @given(seeds.map(lambda random: policies(random, (0,))), steps)
    def run(policy: Policy, sequence: list[Step]) -> None:
        check(bench, policy, sequence, None)

    run()
