# SPDX-License-Identifier: Apache-2.0
"""Random gradient packets through the compiled program, against a model of the policy in Python (in process)."""

from collections import Counter
from dataclasses import replace

from gradlane_packets import H1, H2, H3, H4, HOSTS, gradient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packet_bench import POLICY, Bench, fabric_file, job_file
from packet_targets import InProcess, Sent
from policy_model import Model, Slice, Verdict
from scapy.layers.inet import IP

from gradlane.wire import MAX_SLICES, Kind
from gradlane_controller.counters import Reason

FABRIC = fabric_file("80kbit")
JOBS = (
    job_file(1, (H1, H2, H3), mask=3),
    job_file(
        2,
        (H1, H4),
        base=8,
        mask=1,
        policy="""
queue_classes = [ { layers = [2, 2], class = 0 }, { layers = [3, 65535], class = 1 } ]
drop_precedences = [ { magnitudes = [200, 255], drop_precedence = 1 }, { magnitudes = [0, 199], drop_precedence = 7 } ]
""",
    ),
    job_file(3, (H4,), base=4096, policy=POLICY),
)
EDGES = (0, 1, 2, 3, 4, 10, 11, 62, 63, 64, 100, 101, 65535)

MESSAGES = (0, 1, 4, 8, 2**31 - 1, 2**31, 2**31 + 4, 2**32 - 4, 2**32 - 1)

# Any packet of a host; a third of them the guard refuses.
anything = st.builds(
    lambda sender, job, **fields: Slice(port=sender, source=sender, job=job, **fields),
    sender=st.integers(1, 4),
    job=st.integers(0, 4),
    destination=st.integers(1, 4),
    kind=st.one_of(st.sampled_from(Kind), st.integers(0, 15)),
    layer=st.one_of(st.sampled_from(EDGES), st.integers(0, 65535)),
    magnitude=st.integers(0, 255),
    budget=st.one_of(st.integers(0, 4), st.integers(0, 65535)),
    message=st.one_of(st.sampled_from(MESSAGES), st.integers(0, 2**32 - 1)),
    length=st.integers(78, 1514),
)
# Droppable slices of few messages of one job towards one port, where queues fill and budgets are spent.
incast = st.builds(
    lambda sender, **fields: Slice(port=sender, source=sender, destination=2, job=1, length=1000, **fields),
    sender=st.integers(1, 3),
    kind=st.sampled_from([Kind.DATA, Kind.DATA, Kind.DATA, Kind.REPAIR]),
    layer=st.integers(0, 11),
    magnitude=st.sampled_from([0, 63, 64, 127, 128, 159, 160]),
    budget=st.sampled_from([0, 1, 2, 3, 3, MAX_SLICES]),
    message=st.sampled_from(MESSAGES),
)
steps = st.tuples(
    st.one_of(anything, incast, incast, incast),
    st.sampled_from([0] * 16 + [1, 2, 3, 4]),  # the port it enters by; 0: the source's own
    st.integers(1, 8),  # so many of the same slice
    st.sampled_from([0, 0, 0, 0, 1_000, 20_000_001, 150_000_000, 2_000_000_000]),  # ns before them
)


def frame_of(it: Slice) -> bytes:
    return gradient(
        HOSTS[it.source - 1],
        HOSTS[it.destination - 1],
        frame_bytes=it.length,
        job=it.job,
        kind=it.kind,
        layer=it.layer,
        magnitude=it.magnitude,
        budget=it.budget,
        message=it.message,
    )


def seen(copies: list[Sent], verdict: Verdict) -> Verdict:
    """The verdict that the copies show; what a drop does not show is taken from the model and checked by counters."""
    if not copies:
        return Verdict(verdict.reason, verdict.queue_class, verdict.drop_precedence)
    (sent,) = copies
    tos = sent.packet[IP].tos
    assert sent.queue == tos >> 5
    return Verdict(verdict.reason, tos >> 5, tos >> 2 & 7, sent.port, tos & 3)


def test_the_program_decides_every_random_sequence_of_gradients_as_the_model_does(
    in_process: InProcess, schema
) -> None:
    bench = Bench(in_process, schema)
    reached: Counter[Reason] = Counter()

    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(st.lists(steps, min_size=10, max_size=40))
    def check(sequence: list[tuple[Slice, int, int, int]]) -> None:
        bench.install(*JOBS, where=FABRIC)
        model = Model(FABRIC, JOBS)
        decisions: Counter[tuple[Reason, int, int]] = Counter()
        for chosen, port, times, later in sequence:
            it = replace(chosen, port=port or chosen.source)
            in_process.switch.now += later
            frame = frame_of(it)
            for _ in range(times):
                verdict = model.decide(it, in_process.switch.now)
                assert seen(bench.process(it.port, frame), verdict) == verdict, it
                decisions[verdict.reason, verdict.queue_class, verdict.drop_precedence] += 1
        assert bench.decisions() == decisions
        drop_map = {(index >> 4, index & 15): count.packets for index, count in bench.cells("drop_map").items()}
        assert drop_map == model.drops
        for (reason, _, _), count in decisions.items():
            reached[reason] += count

    check()
    gradient_reasons = {Reason.FORWARDED, Reason.BUDGET_SPENT, Reason.STALE_MESSAGE, Reason.DROPPED_GUARD}
    gradient_reasons |= {Reason.DROPPED_YELLOW, Reason.DROPPED_RED}
    assert set(reached) == gradient_reasons, f"the random packets must reach every decision; they reached {reached}"
