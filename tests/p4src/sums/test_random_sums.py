# SPDX-License-Identifier: Apache-2.0
"""Random contributions, on each switch, against the model of the slots; and the same fates on both."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from finsy import P4Schema
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gradlane.wire import SUM_WORD, Flag, Kind
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import Bmv2, InProcess, Sent
from tests.p4src.sums.sum_bench import EPOCH, EVERY, JOBS, SumBench, contribution
from tests.support.effort import tries
from tests.support.gradlane_packets import FAR, U5, UPLINKS, Host, Uplink
from tests.support.sum_switch import Event

Step = tuple[int, Host | Uplink, bytes]
USUAL = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
    # Seeds do not shrink.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
SEEDS = st.integers(0, 2**64 - 1).map(Random)
# Two generations that follow one another, and one far off.
GENERATIONS = (0xFFFFFFFF, 0, 0x7FFFFFFE)


def step(random: Random, begin: int, generation: int, lane: int, jobs: Sequence[int]) -> Step:
    """A contribution of a worker of one of the jobs, or what comes from the fabric, in few slots; most go together.

    `lane`: bytes that are added together, so that they must have room for the sum.
    """
    number = random.choice(jobs)
    place = JOBS[number]
    below = [uplink for uplink in UPLINKS if uplink.port in place.beneath]
    above = [U5, *below] if number > 2 or not random.randrange(20) else []
    source = random.choice([*place.hosts, *below, *above])
    slice_ = (begin + random.choice([0, 0, 0, 0, 0, 1, 8, -8])) % (1 << 32)
    size = 1 + slice_ % 3 if random.randrange(8) else random.randint(1, 11)
    flags = Flag.SUM | random.choice([0, 0, 0, Flag.END, 0x80])
    members = random.choice([0, random.getrandbits(32), place.everybody & random.getrandbits(32), place.everybody])
    if isinstance(source, Uplink):
        covers = place.beneath.get(source.port, 0)
        if random.randrange(8) if not covers else not random.randrange(3):
            flags |= Flag.PULL
        elif source.port in place.stands_for:
            told = place.stands_for[source.port]
            members = random.choice([told, told, told, told, told | covers, covers, EVERY, random.getrandbits(32)])
        elif random.randrange(8):
            members = covers & random.getrandbits(32)
    elif not random.randrange(16):
        flags |= Flag.PULL
    frame = contribution(
        source if isinstance(source, Host) else FAR,
        # The sum does not overflow, as no lane of a worker's does.
        b"".join(bytes([random.randrange(32)]) + random.randbytes(lane - 1) for _ in range(size * SUM_WORD // lane)),
        through=source,
        job=number,
        generation=generation if random.randrange(12) else random.choice(GENERATIONS),
        number=slice_,
        slot=slice_ & 7 if random.randrange(12) else random.randrange(1 << 16),
        exponent=random.randint(-128, 127),
        members=members,
        epoch=random.choice([0, 0, EPOCH, EPOCH, EPOCH, random.randrange(256)]),
        kind=random.choice([Kind.DATA, Kind.DATA, Kind.REPAIR]),
        flags=flags,
        layer=random.choice([0, 3]),
        step=random.randrange(1 << 32),
        checksum=random.choice([None, None, None, None, None, 0, random.randrange(1 << 16)]),
    )
    return number, source, frame


def steps(random: Random, count: int, sums: SumBench) -> list[Step]:
    """A sequence, whose slices begin where numbers begin anew, or anywhere."""
    begin = random.choice([0, 0xFFFFFFF8, 0x7FFFFFFC, random.randrange(1 << 32)])
    lane = 4 if sums.of_tofino else SUM_WORD  # a Tofino adds 32 bits at a time, the others a word
    jobs = [number for number in (1, 1, 2, 3, 3, 4, 4, 5, 5, 6, 6) if number in sums.jobs]
    return [step(random, begin + n // 20, GENERATIONS[2 * n > count], lane, jobs) for n in range(count)]


def check(sums: SumBench, sequence: list[Step]) -> None:
    """Every frame's fate, byte by byte, and in the end all counters."""
    sums.install()
    for number, source, frame in sequence:
        sums.send(source, frame, number)
    sums.check_counters()


def test_every_random_sequence_ends_as_the_model_says(sums: SumBench) -> None:
    count = 3 if isinstance(sums.bench.target, Bmv2) else 12

    @settings(USUAL, max_examples=tries(count))
    @given(SEEDS, st.integers(20, 60))
    def run(random: Random, length: int) -> None:
        check(SumBench(sums.bench), steps(random, length, sums))

    run()


def test_random_sequences_reach_every_event_of_every_job(sums: SumBench) -> None:
    """Always the same ones."""
    reached: Counter[tuple[int, Event]] = Counter()
    for seed in range(2):
        it = SumBench(sums.bench)
        check(it, steps(Random(seed), 250, sums))
        reached.update(it.events)
    assert {event for _, event in reached} == set(Event)
    assert {number for number, _ in reached} == set(sums.jobs)
    assert all(reached[number, Event.RESULT] and reached[number, Event.STALE] for number in sums.jobs)


def test_the_same_contributions_have_the_same_fates_on_both_switches(
    sum_in_process: InProcess, sum_bmv2: Bmv2, sum_schema: P4Schema
) -> None:
    both = [SumBench(Bench(target, sum_schema)) for target in (sum_in_process, sum_bmv2)]
    for it in both:
        it.install()
    for number, (_, source, frame) in enumerate(steps(Random(5), 200, both[0])):
        fates = [sorted(map(fate, it.bench.process(source, frame))) for it in both]
        assert fates[0] == fates[1], (number, source, frame.hex())
    assert both[0].counted() == both[1].counted()
    assert both[0].bench.decision_cells(0, *JOBS) == both[1].bench.decision_cells(0, *JOBS)


def fate(sent: Sent) -> tuple[int, bytes]:
    """What is the same on both."""
    return sent.port, sent.frame
