# SPDX-License-Identifier: Apache-2.0
"""What bench.fabric.spraying makes of its times, and its fabrics."""

import pytest
import tomli_w

from bench.fabric.spraying import CASES, Result, gains, recovery, table
from bench.fabric.spraying_fabric import ThreeTiers, members
from gradlane_controller.network.fabric_file import parse
from lab.model.plan import FabricPlan


@pytest.mark.parametrize(
    ("seconds", "death", "expected"),
    [
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], 1.5, 0.0),
        ([1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0], 2.5, 1.5),  # until the end of the slow one
        ([2.0, 1.0, 1.0, 1.0, 1.0, 1.0], 3.5, 0.0),  # slow before
        ([1.0, 3.0, 1.0, 1.0, 1.4, 1.0, 1.0, 1.0], 1.0, 6.4),  # two in a row are not enough
        ([1.0, 3.0, 1.0, 1.0, 1.0, 1.4, 1.0, 1.0], 1.0, 3.0),  # three are: what is slow later has other causes
        ([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 2.0], 4.5, 4.5),  # it never was as before
    ],
)
def test_recovery_ends_before_three_steady_steps(seconds: list[float], death: float, expected: float) -> None:
    assert recovery(seconds, death) == pytest.approx(expected)


def test_gain_is_of_medians_in_the_same_assignment() -> None:
    times = {"spraying": [[1.0, 9.0, 1.0], [2.0]], "ecmp": [[2.0], [3.0, 3.0, 0.0]]}
    results = [Result("busy", n, arm, runs[n], 1.0) for arm, runs in times.items() for n in range(2)]
    assert gains(results, "busy") == [2.0, 1.5]
    assert table(results).rows[0][:3] == ["busy", "1.75", "1.50 - 2.00"]


@pytest.mark.parametrize("name", CASES)
def test_every_fabric_is_one_that_the_controller_takes_in_each_assignment(name: str) -> None:
    case = CASES[name]
    plan = case.plan(10_000_000, 3)
    for assignment in range(3):
        file = plan.assigned(assignment)
        addresses = [port["address"] for port in file["port"]]
        assert [address for _, address in members(plan, assignment)] == addresses[: len(plan.of_role("worker"))]
        fabric = parse(tomli_w.dumps(file), "fabric.toml")
        assert len(fabric.ports) == len(plan.hosts)
    drawn = {tuple(plan.addresses_of(host)) for host in plan.hosts}
    assert len(drawn) == len(plan.hosts)


def test_one_link_is_slow_at_both_ends_and_the_controller_does_not_know() -> None:
    plan = CASES["slow"].plan(10_000_000, 1)
    usual = FabricPlan.port_settings
    slow = [
        (switch, port)
        for switch in plan.topology.switches
        for port, setting in plan.port_settings(switch).items()
        if setting != usual(plan, switch)[port]
    ]
    assert slow == [("leaf1", 3), ("spine1", 1)]
    assert plan.port_settings("leaf1")[3].startswith("rate=5mbit")
    assert {link["rate"] for link in plan.document()["link"]} == {"10mbit"}


def test_three_tiers_have_two_ways_up_everywhere() -> None:
    tree = ThreeTiers("leafspine")
    ends = [end for link in tree.links for end in link]
    assert all(ends.count(leaf) == 2 for leaf in tree.edges)
    assert all(ends.count(name) == 4 for name in tree.switches if name not in tree.edges)
