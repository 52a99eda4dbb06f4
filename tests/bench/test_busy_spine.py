# SPDX-License-Identifier: Apache-2.0
"""What bench.fabric.busy_spine makes of its times, and its fabric."""

import tomli_w

from bench.fabric.busy_spine import CASES, Cycle, Racks, table
from bench.harness.job import document
from gradlane import job
from gradlane_controller.network.fabric_file import parse
from gradlane_controller.policy import desired_entities


def test_links_have_half_the_rate_for_switches_and_controller_alike() -> None:
    plan = Racks.of_rate(20_000_000)
    fabric = parse(tomli_w.dumps(plan.document()), "fabric.toml")
    assert {port.rate for port in fabric.ports} == {20_000_000}
    assert {port.rate for port in fabric.link_ports} == {10_000_000}
    for end in fabric.link_ports:
        assert plan.port_settings(end.switch)[end.number].startswith("rate=10mbit")
    for host in fabric.ports:
        assert plan.port_settings(host.switch)[host.number].startswith("rate=20mbit")


def test_every_case_is_a_job_that_the_fabric_takes() -> None:
    plan = Racks.of_rate(20_000_000)
    fabric = parse(tomli_w.dumps(plan.document()), "fabric.toml")
    members = [(host.name, host.address) for host in plan.of_role("worker")]
    for name, transport in CASES.items():
        made = document(name, 1, members, plan.rate, plan.buffer, 0.0, transport)
        assert desired_entities(fabric, [job.parse(tomli_w.dumps(made), name)])


def test_gain_is_of_the_medians_of_one_cycle() -> None:
    cycles = [
        Cycle("sums", [1.0], [3.0, 3.0, 9.0], [2.0], [{"spine1": 8, "spine2": 8}, {"spine1": 4, "spine2": 12}]),
        Cycle("sums", [1.0], [4.0], [2.0], [{"spine1": 8, "spine2": 8}, {"spine1": 4, "spine2": 12}]),
        Cycle("multicast", [1.0], [1.0], [2.0], [{}, {}]),
    ]
    assert [it.gain for it in cycles] == [1.5, 2.0, 0.5]
    assert table(cycles).rows == [
        ["sums", "1000", "3500", "2000", "1.75", "1.50 - 2.00", "4"],
        ["multicast", "1000", "1000", "2000", "0.50", "0.50 - 0.50", "-"],
    ]
