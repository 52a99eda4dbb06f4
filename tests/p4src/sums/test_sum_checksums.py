# SPDX-License-Identifier: Apache-2.0
"""The UDP checksum of a result: that of its bytes, as long as those of all contributions were of theirs."""

from random import Random

import pytest

from gradlane.wire import Kind
from tests.p4src.packet_targets import Sent
from tests.p4src.sums.sum_bench import H1, H2, H3, JOBS, SumBench, checksum_of, contribution, defect, words
from tests.support.gradlane_packets import Host, rebuilt
from tests.support.sum_switch import Event

RESULT = (Event.CONTRIBUTION, Event.RESULT)


@pytest.fixture(autouse=True)
def with_checksums(sums: SumBench) -> None:
    if sums.of_tofino:
        pytest.skip("sums have no UDP checksum there")


each_version = pytest.mark.parametrize("job", [1, 2], ids=["IPv4", "IPv6"])


def results(sums: SumBench, frames: dict[Host, bytes]) -> list[Sent]:
    """What leaves when all have contributed, and what the first one gets that asks again."""
    *firsts, (last, frame) = frames.items()
    for source, mine in firsts:
        assert sums.bench.drops(source, mine)
    copies = sums.bench.process(last, frame)
    assert len(copies) == 5
    return [*copies, *sums.bench.process(*firsts[0])]


@pytest.mark.parametrize("seed", range(8))
def test_a_results_checksum_is_that_of_its_bytes(sums: SumBench, seed: int) -> None:
    """Over IPv4 and IPv6."""
    job = 1 + seed % 2
    random = Random(seed)
    frames: dict[Host, bytes] = {}
    for source in JOBS[job].hosts:
        lanes = b"".join(random.randrange(0, 1 << 14).to_bytes(2, "big") for _ in range(64 * (seed + 1)))
        fields = {"step": random.randrange(1 << 32), "magnitude": random.randrange(256)}
        frames[source] = contribution(source, lanes, job=job, **fields)
    for copy in results(sums, frames):
        assert defect(copy.frame) == 0
        assert rebuilt(copy.frame) == copy.frame


@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_contribution_without_a_checksum_makes_a_result_without_one(sums: SumBench, who: int) -> None:
    frames = {
        source: contribution(source, words(2), checksum=0 if number == who else None)
        for number, source in enumerate((H1, H2, H3))
    }
    assert {defect(copy.frame) for copy in results(sums, frames)} == {None}


def test_an_answer_has_a_checksum_of_its_own_headers(sums: SumBench) -> None:
    """Whether the datagram that asks has one, and a right one, does not matter: its lanes are thrown away."""
    for source in (H1, H2, H3):
        events = sums.send(source, contribution(source, words(3)))
    assert events == RESULT
    for checksum in (None, 0, 0x1234, 0xFFFF):
        asks = contribution(H1, words(3, 99), kind=Kind.REPAIR, step=7, checksum=checksum)
        assert sums.send(H1, asks) == (Event.ANSWER,)
        (answer,) = sums.bench.process(H1, asks)
        assert defect(answer.frame) == 0


@pytest.mark.parametrize("who", [0, 1, 2])
@pytest.mark.parametrize(("error", "job"), [(1, 1), (0x8000, 1), (0xFFFE, 1), (0x100, 2)])
def test_a_wrong_checksum_makes_a_wrong_one(sums: SumBench, who: int, error: int, job: int) -> None:
    """No switch repairs what was spoiled on the way: end to end means that the receiver finds it."""
    frames: dict[Host, bytes] = {}
    for number, source in enumerate(JOBS[job].hosts):
        frame = contribution(source, words(2), job=job)
        if number == who:
            right = int.from_bytes(checksum_of(frame), "big")
            frame = contribution(source, words(2), job=job, checksum=(right + error) % 0xFFFF or 0xFFFF)
        frames[source] = frame
    assert {defect(copy.frame) for copy in results(sums, frames)} == {0xFFFF - error}


def test_lanes_whose_sum_is_zero(sums: SumBench) -> None:
    """In one's complement there are two zeros, and for UDP one of them says that there is no checksum."""
    for lanes in (bytes(128), b"\xff\xff" * 64):
        frames = {H1: contribution(H1, lanes), H2: contribution(H2, bytes(128)), H3: contribution(H3, bytes(128))}
        for copy in results(sums, frames):
            assert defect(copy.frame) == 0
        sums.install()


@each_version
def test_checksums_at_their_ends(sums: SumBench, job: int) -> None:
    """Where the checksum is computed to 0, which is sent as 0xFFFF: of contributions, and of a result."""
    hosts = JOBS[job].hosts
    for source in hosts:
        frame = contribution(source, bytes(128), job=job)
        # What is added to the lanes is taken off the checksum.
        frame = contribution(source, bytes(126) + checksum_of(frame), job=job)
        assert checksum_of(frame) == b"\xff\xff"
        assert defect(frame) == 0
        events = sums.send(source, frame, job)
    assert events == RESULT
    frames = {source: contribution(source, bytes(128), job=job, number=1) for source in hosts}
    checksum = int.from_bytes(checksum_of(results(sums, frames)[0].frame), "big")
    # The generation is larger by one, and so would the checksum be smaller.
    lanes = {**dict.fromkeys(hosts, 0), hosts[-1]: checksum - 1}
    frames = {
        source: contribution(source, value.to_bytes(128, "big"), job=job, number=1, generation=2)
        for source, value in lanes.items()
    }
    assert {checksum_of(copy.frame) for copy in results(sums, frames)[:5]} == {b"\xff\xff"}
