# SPDX-License-Identifier: Apache-2.0
"""A switch that is one of several: its hosts' sum goes up, that of all comes down; or it adds what others have added.

Job 3 is summed above this switch, h2 and h4 are here. Job 4 is summed here: h3, and the workers behind ports 6 and 7.
Jobs 5 and 6 are the same with more workers than bits: what is behind a port has some of this switch's own.
"""

from dataclasses import replace

import pytest

from gradlane.wire import HEADER_BYTES, Flag, Header, Kind
from tests.p4src.packet_bench import Count
from tests.p4src.sums.sum_bench import (
    EPOCH,
    EVERY,
    JOBS,
    SumBench,
    bits_of,
    contribution,
    datagram_of,
    everybody,
    member,
    partial,
    words,
)
from tests.support.entries import UNDRAINED, job, without
from tests.support.gradlane_packets import H1, H2, H3, H4, U5, U6, U7, U8, Host, Uplink, tags
from tests.support.sum_switch import Event, SumHeader

ABSORBED, RESULT = (Event.CONTRIBUTION,), (Event.CONTRIBUTION, Event.RESULT)
PARTIAL = (Event.CONTRIBUTION, Event.PARTIAL)
FROM_ABOVE, AGAIN = (Event.RESULT,), (Event.PARTIAL,)
ANSWER, DUPLICATE, STALE, LATE = (Event.ANSWER,), (Event.DUPLICATE,), (Event.STALE,), (Event.LATE,)
NO_SLOTS = (Event.NO_SLOTS,)
ALL = everybody(3)
SIX, SEVEN = JOBS[4].beneath[6], JOBS[4].beneath[7]


def mine(source: Host, value: int = 1, *, job: int = 3, **fields: int) -> bytes:
    """A contribution of a worker of job 3 or 4."""
    return contribution(source, words(2, value), job=job, **fields)


def from_above(members: int = ALL, value: int = 1000, through: Uplink = U5, **fields: int) -> bytes:
    """A result of job 3."""
    return partial(through, members, words(2, value), job=3, flags=Flag.SUM | Flag.PULL, **fields)


def sent_up(sums: SumBench, **fields: int) -> None:
    """Both workers of job 3 that are here have contributed."""
    assert sums.send(H2, mine(H2, 5, **fields), 3) == ABSORBED
    assert sums.send(H4, mine(H4, 7, **fields), 3) == PARTIAL


@pytest.mark.parametrize(("number", "port"), [(0, 5), (1, 8), (15, 8), (16, 5), (0xFFFFFFFF, 8)])
def test_the_sum_of_all_that_are_here_goes_up_by_the_tree_of_its_number(sums: SumBench, number: int, port: int) -> None:
    assert sums.send(H2, mine(H2, 5, number=number), 3) == ABSORBED
    events, (up,) = sums.process(H4, mine(H4, 7, number=number, epoch=EPOCH), 3)
    assert (events, up.port) == (PARTIAL, port)
    datagram = datagram_of(up.frame)
    payload = datagram[HEADER_BYTES:]
    assert Header.unpack(datagram).flags == Flag.SUM
    assert SumHeader.unpack(payload) == SumHeader(1, bits_of((H2, H4)), number & 0xFFFF, -3, EPOCH)
    assert [int.from_bytes(payload[n : n + 4], "big") for n in (12, 16)] == [12, 14]
    sums.check_counters()


def test_until_the_result_is_here_who_comes_again_sends_the_same_up_again(sums: SumBench) -> None:
    sent_up(sums)
    for source in (H2, H4, H2):
        assert sums.send(source, mine(source, 6_000, kind=Kind.REPAIR), 3) == AGAIN
    sums.check_counters()


def test_what_comes_again_before_all_have_come_goes_nowhere(sums: SumBench) -> None:
    assert sums.send(H2, mine(H2), 3) == ABSORBED
    assert sums.send(H2, mine(H2), 3) == DUPLICATE
    assert sums.send(H4, mine(H4), 3) == PARTIAL


def test_a_result_from_above_goes_to_all_that_are_here_and_answers_them(sums: SumBench) -> None:
    sent_up(sums)
    events, sent = sums.process(U5, from_above(), 3)
    assert (events, sorted(copy.port for copy in sent)) == (FROM_ABOVE, [2, 4])
    assert sums.send(U5, from_above(value=77), 3) == DUPLICATE, "it stays as it is, and no copies go round"
    for source in (H2, H4):
        events, (answer,) = sums.process(source, mine(source, 6_000), 3)
        assert events == ANSWER
        assert SumHeader.unpack(datagram_of(answer.frame)[HEADER_BYTES:]) == SumHeader(1, ALL, 0, -3, EPOCH)
    sums.check_counters()


def test_a_result_may_come_by_any_uplink(sums: SumBench) -> None:
    """Of a root that was the slice's until a moment ago."""
    sent_up(sums)
    assert sums.send(U8, from_above(through=U8), 3) == FROM_ABOVE


@pytest.mark.parametrize("before", ["nothing", "an older slice", "one of two", "of an older generation"])
def test_a_result_of_what_this_switch_has_forgotten_is_taken(sums: SumBench, before: str) -> None:
    if before == "one of two":
        sums.send(H2, mine(H2, number=9), 3)
    elif before != "nothing":
        generation = {"generation": 0} if before == "of an older generation" else {}
        sent_up(sums, number=1, **generation)
    assert sums.send(U5, from_above(number=9), 3) == FROM_ABOVE
    assert sums.send(H4, mine(H4, number=9), 3) == ANSWER


def test_a_result_that_is_older_or_of_another_length_is_dropped(sums: SumBench) -> None:
    sent_up(sums, number=9)
    assert sums.send(U5, from_above(number=1), 3) == STALE
    assert sums.send(U5, from_above(number=17, generation=0), 3) == STALE
    other = partial(U5, ALL, words(3), job=3, number=9, flags=Flag.SUM | Flag.PULL)
    assert sums.of_tofino or sums.send(U5, other, 3) == STALE
    assert sums.send(U5, from_above(1 << 20, number=9), 3) == STALE, "of somebody who is not of the job"
    assert sums.send(H2, mine(H2, number=9), 3) == AGAIN, "it is as it was"
    sums.check_counters()


@pytest.mark.parametrize(("number", "port"), [(0, 5), (1, 8)])
def test_the_result_goes_up_if_a_worker_that_has_it_says_so(sums: SumBench, number: int, port: int) -> None:
    """The root may have lost it, or be another one."""
    sent_up(sums, number=number)
    up = {5: U5, 8: U8}[port]
    assert sums.send(up, from_above(through=up, number=number), 3) == FROM_ABOVE
    for members in (member(H2), member(H2) | member(H4)):
        events, (sent,) = sums.process(H2, mine(H2, 6_000, number=number, members=members, kind=Kind.REPAIR), 3)
        assert (events, sent.port) == (AGAIN, port)
        datagram = datagram_of(sent.frame)
        assert Header.unpack(datagram).flags == Flag.SUM | Flag.PULL
        assert SumHeader.unpack(datagram[HEADER_BYTES:]) == SumHeader(1, ALL, number, -3, EPOCH)
        assert int.from_bytes(datagram[HEADER_BYTES + 12 :][:4], "big") == 1000
    assert sums.send(H2, mine(H2, number=number, members=member(H4)), 3) == ANSWER, "who may be missing is another"
    assert sums.send(H2, mine(H2, number=number, members=member(H2), epoch=EPOCH + 1), 3) == STALE
    sums.check_counters()


def test_before_the_result_is_here_who_has_it_contributes_as_ever(sums: SumBench) -> None:
    assert sums.send(H2, mine(H2, members=member(H2)), 3) == ABSORBED
    assert sums.send(H2, mine(H2, members=member(H2)), 3) == DUPLICATE
    events, (up,) = sums.process(H4, mine(H4, members=member(H4), epoch=EPOCH), 3)
    assert (events, up.port) == (PARTIAL, 5)
    assert Header.unpack(datagram_of(up.frame)).flags == Flag.SUM


def test_a_result_that_is_here_goes_up_if_it_comes_from_elsewhere(sums: SumBench) -> None:
    sent_up(sums)
    assert sums.send(U8, from_above(through=U8), 3) == FROM_ABOVE
    events, (sent,) = sums.process(U8, from_above(value=77, through=U8), 3)
    assert (events, sent.port) == (AGAIN, 5)
    assert int.from_bytes(datagram_of(sent.frame)[HEADER_BYTES + 12 :][:4], "big") == 1000, "what is here, as it is"
    assert sums.send(U5, from_above(), 3) == DUPLICATE, "from above"
    assert sums.send(U8, from_above(through=U8, number=1 << 31), 3) == STALE
    sums.check_counters()


def test_a_root_takes_a_result_from_beneath_once_and_passes_it_on(sums: SumBench) -> None:
    whole = everybody(4)
    assert sums.send(U6, partial(U6, SIX, words(2, 5), job=4), 4) == ABSORBED
    result = partial(U7, whole, words(2, 1000), job=4, flags=Flag.SUM | Flag.PULL)
    events, sent = sums.process(U7, result, 4)
    assert (events, sorted(copy.port for copy in sent)) == (FROM_ABOVE, [3, 6, 7])
    assert sums.send(U7, result, 4) == DUPLICATE, "there is nobody above"
    assert sums.send(H3, mine(H3, job=4, members=member(H3)), 4) == ANSWER
    assert sums.send(U6, partial(U6, SIX, words(2), job=4), 4) == ANSWER
    sums.check_counters()


def test_who_is_not_in_the_result_is_late(sums: SumBench) -> None:
    sent_up(sums)
    assert sums.send(U5, from_above(ALL & ~member(H4)), 3) == FROM_ABOVE
    assert sums.send(H4, mine(H4), 3) == LATE
    assert sums.send(H2, mine(H2), 3) == ANSWER


def test_a_host_sends_no_results(sums: SumBench) -> None:
    sent_up(sums)
    assert sums.send(H2, mine(H2, flags=Flag.SUM | Flag.PULL, members=ALL), 3) == (Event.REFUSED,)
    assert sums.send(H2, mine(H2), 3) == AGAIN


def test_a_closer_closes_here_what_lacks_here(sums: SumBench) -> None:
    closing = {"members": ALL & ~member(H2), "epoch": EPOCH}
    events, (up,) = sums.process(H2, mine(H2, **closing), 3)
    assert (events, up.port) == (PARTIAL, 5), "what lacks elsewhere is no matter of this switch"
    assert SumHeader.unpack(datagram_of(up.frame)[HEADER_BYTES:]).members == member(H2)
    assert sums.send(H4, mine(H4), 3) == AGAIN
    assert sums.send(U5, from_above(ALL & ~member(H4)), 3) == FROM_ABOVE
    assert sums.send(H4, mine(H4), 3) == LATE


def test_a_root_adds_what_comes_from_beneath(sums: SumBench) -> None:
    assert sums.send(U6, partial(U6, SIX, words(2, 5), job=4), 4) == ABSORBED
    assert sums.send(H3, mine(H3, 7, job=4), 4) == ABSORBED
    events, sent = sums.process(U7, partial(U7, SEVEN, words(2, 9), job=4, epoch=99), 4)
    assert (events, sorted(copy.port for copy in sent)) == (RESULT, [3, 6, 7]), "also to where it came from"
    payload = datagram_of(sent[0].frame)[HEADER_BYTES:]
    assert SumHeader.unpack(payload) == SumHeader(1, everybody(4), 0, -3, EPOCH)
    assert int.from_bytes(payload[12:16], "big") == 21
    sums.check_counters()


def test_a_partial_says_who_is_in_it_and_its_port_whom_it_accounts_for(sums: SumBench) -> None:
    sums.send(U6, partial(U6, 0x5, job=4), 4)
    sums.send(U7, partial(U7, 0x30, job=4), 4)
    _, sent = sums.process(H3, contribution(H3, job=4), 4)
    assert SumHeader.unpack(datagram_of(sent[0].frame)[HEADER_BYTES:]).members == 0x35 | member(H3)


def test_a_partial_that_comes_again_counts_once_and_gets_the_result(sums: SumBench) -> None:
    sums.send(H3, contribution(H3, job=4), 4)
    assert sums.send(U6, partial(U6, SIX, job=4), 4) == ABSORBED
    assert sums.send(U6, partial(U6, SIX, job=4), 4) == DUPLICATE
    assert sums.send(U6, partial(U6, 0x1, words(1, 99), job=4), 4) == DUPLICATE, "of a switch that has restarted"
    assert sums.send(U7, partial(U7, SEVEN, job=4), 4) == RESULT
    events, (answer,) = sums.process(U6, partial(U6, 0x1, words(1, 99), job=4), 4)
    assert (events, answer.port) == (ANSWER, 6)
    sums.check_counters()


def test_a_partial_of_another_tree_is_dropped(sums: SumBench) -> None:
    """So a sum is always of exactly those that it says, even while the tables of two switches differ."""
    for members in (SIX | 0x10, SEVEN, everybody(4)):
        assert sums.send(U6, partial(U6, members, job=4), 4) == STALE
    assert sums.send(U6, partial(U6, SIX, job=4), 4) == ABSORBED
    changed = replace(JOBS[4], beneath={6: SIX, 7: SEVEN | 0x4})
    sums.bench.change(*changed.entries(4))
    sums.jobs = {**JOBS, 4: changed}
    assert sums.send(U7, partial(U7, SEVEN, job=4), 4) == DUPLICATE, "for a worker that is in what is here already"


def test_nobody_closes_by_a_partial(sums: SumBench) -> None:
    sums.send(U6, partial(U6, SIX, job=4), 4)
    assert sums.send(U7, partial(U7, SEVEN, job=4, epoch=EPOCH), 4) == ABSORBED
    assert sums.send(H3, contribution(H3, job=4), 4) == RESULT


def test_a_port_without_an_entry_contributes_nothing(sums: SumBench) -> None:
    assert sums.send(U5, partial(U5, SIX, job=4), 4) == NO_SLOTS
    assert sums.send(U6, partial(U6, bits_of((H2,)), job=3), 3) == NO_SLOTS
    sums.check_counters()


def test_a_job_without_trees_is_not_summed(sums: SumBench) -> None:
    """Nobody takes itself for a root because its tables are not written yet."""
    all_jobs = sums.jobs
    sums.jobs = {number: place for number, place in all_jobs.items() if number != 3}
    sums.install(job(3, JOBS[3].hosts), without(JOBS[3].entries(3), "sum_trees"))
    for source, frame in ((H2, mine(H2)), (H4, mine(H4)), (U5, from_above())):
        assert sums.bench.drops(source, frame)
    sums.jobs = all_jobs
    assert sums.counted() == {(3, Event.NO_SLOTS): Count(3, 3 * len(sums.fitted(mine(H2))))}


def test_a_way_up_that_is_congested_marks_what_goes_up(sums: SumBench) -> None:
    marks: list[int] = []
    lanes = words(7)
    green = UNDRAINED.cburst // len(sums.fitted(contribution(H4, lanes, job=3)))
    assert green == (25 if sums.of_tofino else 5)
    for number in range(0, 2 * green + 6, 2):
        sums.send(H2, contribution(H2, lanes, job=3, number=number), 3)
        _, (up,) = sums.process(H4, contribution(H4, lanes, job=3, number=number), 3)
        marks.append(tags(up.frame)[2])
    assert marks == [2] * green + [3] * 3


def test_no_sum_counts_as_traffic_that_a_tree_should_avoid(sums: SumBench) -> None:
    if sums.of_tofino:
        pytest.skip("the program for Tofino does not count what fills a port")
    sent_up(sums)
    assert sums.send(U5, from_above(), 3) == FROM_ABOVE
    assert sums.send(H2, mine(H2), 3) == ANSWER
    assert sums.bench.cells("routed", range(512)) == {}


@pytest.fixture
def large(sums: SumBench) -> SumBench:
    if sums.of_tofino:
        pytest.skip("the program for Tofino sums jobs of up to 32 workers")
    return sums


def of_part(through: Uplink, members: int | None = None, value: int = 1, *, job: int, **fields: int) -> bytes:
    """A partial sum of job 5 or 6; None: a whole one."""
    named = JOBS[job].stands_for[through.port] if members is None else members
    return partial(through, named, words(2, value), job=job, **fields)


@pytest.mark.parametrize("through", [U6, U7])
@pytest.mark.parametrize("number", [5, 6])
def test_a_partial_that_stands_for_others_counts_if_it_is_whole(large: SumBench, number: int, through: Uplink) -> None:
    told, bits = JOBS[number].stands_for[through.port], JOBS[number].beneath[through.port]
    for members in {told ^ 0x2, told ^ 0x80000000, told | bits, bits, EVERY, 0} - {told}:
        assert large.send(through, of_part(through, members, 90, job=number), number) == STALE
    assert large.send(through, of_part(through, job=number), number) == ABSORBED
    assert large.send(through, of_part(through, job=number), number) == DUPLICATE
    assert large.send(through, of_part(through, told ^ 0x4, 90, job=number), number) == STALE
    large.check_counters()


def test_what_goes_up_names_this_switchs_own_children(large: SumBench) -> None:
    for through, value in ((U6, 5), (U7, 9)):
        assert large.send(through, of_part(through, None, value, job=5, number=1), 5) == ABSORBED
    assert large.send(H1, mine(H1, 1, job=5, number=1), 5) == ABSORBED
    events, (up,) = large.process(H3, mine(H3, 2, job=5, number=1), 5)
    assert (events, up.port) == (PARTIAL, 8)
    payload = datagram_of(up.frame)[HEADER_BYTES:]
    assert SumHeader.unpack(payload) == SumHeader(1, bits_of((H1, H3)) | 0x5, 1, -3, EPOCH)
    assert int.from_bytes(payload[12:16], "big") == 17
    assert large.send(U6, of_part(U6, job=5, number=1), 5) == AGAIN
    down = partial(U8, EVERY, words(2, 1000), job=5, number=1, flags=Flag.SUM | Flag.PULL)
    events, sent = large.process(U8, down, 5)
    assert (events, sorted(copy.port for copy in sent)) == (FROM_ABOVE, [1, 3, 6, 7])
    assert large.send(U7, of_part(U7, job=5, number=1), 5) == ANSWER
    events, (reminded,) = large.process(H1, mine(H1, job=5, number=1, members=EVERY, kind=Kind.REPAIR), 5)
    assert (events, reminded.port) == (AGAIN, 8), "who has the result names all"
    assert SumHeader.unpack(datagram_of(reminded.frame)[HEADER_BYTES:]).members == EVERY
    large.check_counters()


def test_a_result_of_more_workers_than_bits_names_all_bits(large: SumBench) -> None:
    assert large.send(U7, of_part(U7, None, 5, job=6), 6) == ABSORBED
    assert large.send(H2, mine(H2, 7, job=6, members=EVERY), 6) == ABSORBED, "that closes nothing: it knows no epoch"
    events, sent = large.process(U6, of_part(U6, None, 9, job=6), 6)
    assert (events, sorted(copy.port for copy in sent)) == (RESULT, [2, 6, 7])
    payload = datagram_of(sent[0].frame)[HEADER_BYTES:]
    assert SumHeader.unpack(payload) == SumHeader(1, EVERY, 0, -3, EPOCH)
    assert int.from_bytes(payload[12:16], "big") == 21
    assert large.send(U6, of_part(U6, job=6), 6) == ANSWER
    large.check_counters()


def test_who_has_left_somebody_out_reaches_nobody(large: SumBench) -> None:
    """A worker of such a job names none that may be missing; one that does spoils its own sums alone."""
    closing = {"members": EVERY, "epoch": EPOCH}
    events, (up,) = large.process(H1, mine(H1, job=5, **closing), 5)
    assert events == PARTIAL
    assert SumHeader.unpack(datagram_of(up.frame)[HEADER_BYTES:]).members == member(H1), "not what is whole above"
