# SPDX-License-Identifier: Apache-2.0
"""The schedule of StragglAR, replayed round by round: ports, what a sender has, who ends up with what, and when."""

import math
from collections import Counter, defaultdict

import pytest
from gradlane._core import ffi, lib

from tests.gradlane.core import schedules

MOST = int(lib.GL_STRAGGLAR_MOST)
SIZES = range(2, MOST + 1)


@pytest.mark.parametrize("n", SIZES)
def test_it_takes_the_fewest_rounds_that_are_possible(n: int) -> None:
    # The last swap is in round n - 2; then two have its chunk, and at most twice as many after each further round.
    rounds, transfers = schedules.stragglar(n)
    assert rounds == n - 2 + math.ceil(math.log2(n))
    assert max(transfer[0] for transfer in transfers) == rounds - 1


@pytest.mark.parametrize("n", SIZES)
def test_in_a_round_a_member_sends_and_receives_at_most_one_chunk(n: int) -> None:
    transfers = schedules.stragglar(n)[1]
    for who in (1, 2):
        assert max(Counter((transfer[0], transfer[who]) for transfer in transfers).values()) == 1
    assert [transfer[0] for transfer in transfers] == sorted(transfer[0] for transfer in transfers)


@pytest.mark.parametrize("n", SIZES)
def test_senders_have_what_they_send_and_all_end_with_every_chunk_once(n: int) -> None:
    transfers = schedules.stragglar(n)[1]
    straggler = n - 1
    final: defaultdict[int, set[int]] = defaultdict(set)
    for number in range(1 + max(transfer[0] for transfer in transfers)):
        now = [transfer[1:] for transfer in transfers if transfer[0] == number]
        swap = [(number, straggler, number), (straggler, number, number)] if number < straggler else []
        for source, to, chunk in now:
            if (source, to, chunk) not in swap:
                assert source != to
                assert chunk in final[source]
                assert chunk not in final[to]
        assert {transfer for transfer in now if transfer[2] == number} == set(swap)
        for _, to, chunk in now:
            final[to].add(chunk)
    assert all(final[member] == set(range(n - 1)) for member in range(n))
    assert len(transfers) == n * (n - 1)


def test_there_is_none_for_one_member_or_too_many() -> None:
    assert [lib.gl_stragglar_schedule(n, ffi.NULL) for n in (0, 1, MOST + 1)] == [0, 0, 0]
