# SPDX-License-Identifier: Apache-2.0
"""Switches in a row: over all of a path no message loses more than its budget through policy, whatever its slices meet.

Every port is red all the time, and few slots for many messages force collisions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gradlane.wire import Kind
from tests.p4src.packet_bench import Bench
from tests.p4src.packet_targets import Bmv2, InProcess, Sent
from tests.support.effort import tries
from tests.support.entries import (
    ALWAYS_RED,
    Entity,
    budget_share,
    edge,
    fabric_port,
    job,
    next_hops,
    port_policy,
    route,
    sources,
    station,
    virtual_queue,
)
from tests.support.gradlane_packets import FAR, H1, H2, UPLINKS, Host, Uplink, gradient, gradlane_of

ENTRY = Uplink(8)  # the port of a spine or of the last leaf that faces the first one
USUAL = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@dataclass(frozen=True)
class Slice:
    """What one slice says; `kind` other than DATA and a magnitude of 255 are protected, as is a budget of 0."""

    message: int
    number: int
    budget: int
    magnitude: int
    kind: int

    @cache  # noqa: B019
    def frame(self, version: int) -> bytes:
        fields = {"message": self.message, "slice": self.number, "budget": self.budget, "kind": self.kind}
        return gradient(H1, FAR, version=version, frame_bytes=150, layer=1, magnitude=self.magnitude, **fields)

    @property
    def protected(self) -> bool:
        return self.kind != Kind.DATA or self.budget == 0 or self.magnitude == 255


# A budget belongs to a message: every slice of it says the same.
# Numbers in flight lie within half of their range of one another (RFC 1982), which may begin anywhere.
budgets = st.builds(
    lambda first, budgets: {(first + offset) % 2**32: budget for offset, budget in budgets.items()},
    first=st.sampled_from([0, 2**31 - 2, 2**32 - 2]),
    budgets=st.dictionaries(st.sampled_from([0, 1, 2, 3, 8, 4096, 2**31 - 1]), st.integers(0, 12), min_size=1),
)


@st.composite
def slices(draw: st.DrawFn) -> list[Slice]:
    of = draw(budgets)
    one = st.builds(
        lambda message, **fields: Slice(message, budget=of[message], **fields),
        message=st.sampled_from(sorted(of)),
        number=st.sampled_from([0, 1, 2, 99]),
        magnitude=st.sampled_from([0, 0, 0, 100, 255]),
        kind=st.sampled_from([Kind.DATA] * 5 + [Kind.REPAIR, Kind.STOP]),
    )
    return draw(st.lists(one, min_size=20, max_size=60))


def configure(bench: Bench, entry: Host | Uplink, leaving: Sequence[Host | Uplink], part: str, **policy: int) -> None:
    """A switch of the path: slices of job 1 come in at one port and are sprayed over others, all of them red."""
    from_host = isinstance(entry, Host)
    to_fabric = int(isinstance(leaving[0], Uplink))
    found: list[Entity] = [edge(entry.port) if from_host else fabric_port(entry.port), station(entry.gateway)]
    found += [next_hops(1, *leaving), route("10.0.9.0/24", group=1), route("fd00:0:0:9::/64", group=1)]
    found += [virtual_queue(end.port, ALWAYS_RED) for end in leaving]
    found += [port_policy(end.port, to_fabric=to_fabric) for end in leaving]
    bench.install(found, sources(H1), job(hosts=(H1,), **policy), [budget_share(int(not from_host), to_fabric, part)])


class Path:
    """A first leaf, spines, and a last leaf; the middle may be missing."""

    def __init__(self, first: Bench, spines: Sequence[Bench], last: Bench) -> None:
        self._first, self._spines, self._last = first, spines, last

    def set_up(self, **policy: int) -> None:
        # The parts of docs and controller: over two switches halves; over three a quarter, a quarter divided by the
        # number of spines rounded up to a power of two, and the rest of the half.
        uplinks = UPLINKS[: max(1, len(self._spines))]
        configure(self._first, H1, uplinks, "quarter" if self._spines else "half", **policy)
        for spine in self._spines:
            configure(spine, ENTRY, [UPLINKS[0]], ("quarter", "eighth")[len(self._spines) - 1], **policy)
        configure(self._last, ENTRY, [H2], "rest_of_half", **policy)

    def send(self, frame: bytes) -> bytes | None:
        """What arrives of a frame."""
        sent = self._first.process(H1, frame)
        if sent and self._spines:
            sent = self._into(self._spines[sent[0].port - UPLINKS[0].port], sent[0].frame)
        if sent:
            sent = self._into(self._last, sent[0].frame)
        return sent[0].frame if sent else None

    @staticmethod
    def _into(bench: Bench, frame: bytes) -> list[Sent]:
        """Over a link, whose far end has another MAC address."""
        return bench.process(ENTRY, bytes.fromhex(ENTRY.gateway.replace(":", "")) + frame[6:])

    def check(self, sequence: list[Slice], version: int, trim: bool) -> int:
        """Sends slices; how many were lost through policy in all."""
        lost: Counter[int] = Counter()
        for it in sequence:
            arrived = self.send(it.frame(version))
            if it.protected:
                assert arrived is not None, f"a protected slice is gone: {it}"
                assert gradlane_of(arrived).kind == it.kind
            elif arrived is None or gradlane_of(arrived).kind == Kind.TRIMMED:
                assert trim == (arrived is not None), "what is trimmed arrives"
                lost[it.message] += 1
        budget = {it.message: it.budget for it in sequence}
        beyond = {message: count for message, count in lost.items() if count > budget[message]}
        assert not beyond, f"more than the budget: {beyond} of {budget}"
        return sum(lost.values())


def in_process_path(schema, new, spines: int) -> Path:
    benches = [Bench(new(), schema) for _ in range(spines + 2)]
    return Path(benches[0], benches[1:-1], benches[-1])


@pytest.mark.parametrize("trim", [False, True], ids=["drop", "trim"])
@pytest.mark.parametrize("spines", [0, 1, 2])
def test_no_message_loses_more_than_its_budget_over_a_path_although_slots_collide(
    new_in_process, schema, spines: int, trim: bool
) -> None:
    path = in_process_path(schema, new_in_process, spines)
    lost = 0

    @settings(USUAL, max_examples=tries(6))
    @given(slices(), st.sampled_from([0, 1, 3]), st.sampled_from([4, 6]))
    def run(sequence: list[Slice], mask: int, version: int) -> None:
        nonlocal lost
        path.set_up(mask=mask, trim=trim)
        lost += path.check(sequence, version, trim)

    run()
    assert lost, "the policy must have taken something"


@pytest.mark.parametrize("budget", [1, 3, 16])
@pytest.mark.parametrize("spines", [0, 1, 2])
def test_over_a_path_a_message_loses_the_parts_of_its_budget_and_all_of_it_where_they_add_up(
    new_in_process, schema, spines: int, budget: int
) -> None:
    path = in_process_path(schema, new_in_process, spines)
    path.set_up()
    sequence = [Slice(5, number, budget, 0, Kind.DATA) for number in range(40)]
    lost = path.check(sequence, 4, False)
    if spines == 0:
        assert lost == budget
    else:
        assert lost == budget // 4 + spines * (budget // (4 * spines)) + budget - budget // 2
        assert lost <= budget


def test_a_path_of_gradlane_switch_and_bmv2_keeps_to_the_budget_too(in_process: InProcess, bmv2: Bmv2, schema) -> None:
    path = Path(Bench(in_process, schema), [], Bench(bmv2, schema))

    @settings(USUAL, max_examples=tries(3))
    @given(slices(), st.sampled_from([0, 1, 3]), st.booleans())
    def run(sequence: list[Slice], mask: int, trim: bool) -> None:
        path.set_up(mask=mask, trim=trim)
        path.check(sequence, 4, trim)

    run()
