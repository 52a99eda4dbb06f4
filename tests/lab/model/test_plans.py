# SPDX-License-Identifier: Apache-2.0
"""Scenarios, the fabric's plan, and the files that the controller reads."""

import pytest
import tomli_w

import gradlane.job
import gradlane_controller.network.fabric_file
from gradlane_controller.policy.sums import place
from lab.experiment.arm_run import TASKS
from lab.model import jobs
from lab.model.arms import ARMS
from lab.model.errors import ScenarioError, TopologyError
from lab.model.plan import HTTP_PORT, FabricPlan
from lab.model.scenarios import SCENARIOS
from lab.model.topology import KINDS, Kind, Topology
from lab.training.models import ConvolutionalNetwork


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"workers": 1}, "workers is 1; it must be from 2 to 16"),
        ({"workers": 17}, "from 2 to 16"),
        ({"rate": 999_999}, "rate is 999999 bit/s; it must be from 1000000 to 1000000000 bit/s"),
        ({"buffer": 7999}, "buffer is 7999 bytes; it must be from 8000 to 4000000 bytes"),
        ({"steps": 9}, "steps is 9"),
        ({"servers": 0}, "servers is 0; it must be from 1 to 8"),
        ({"arms": ("gradlane-ps", "tcp")}, "arm 'tcp' is unknown; the arms are ddp-gloo,"),
        ({"arms": ("ps-tcp", "ps-tcp")}, "named twice"),
        ({"arms": ()}, "no arm"),
    ],
)
def test_settings_out_of_range_are_named(setting: dict[str, int], words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        SCENARIOS["incast"].with_settings(**setting)  # pyright: ignore[reportArgumentType]


def test_no_server_hosts_without_arms_that_need_them() -> None:
    assert SCENARIOS["incast"].with_settings(arms=("gradlane", "ddp-gloo")).servers == 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_scenario_is_within_its_own_limits(name: str) -> None:
    scenario = SCENARIOS[name].with_settings()
    assert ARMS[scenario.arms[0]].kind == "gradlane"
    assert any(ARMS[arm].kind != "gradlane" for arm in scenario.arms)
    assert "\n" not in scenario.summary


@pytest.mark.parametrize("arm", [name for name, arm in ARMS.items() if arm.kind == "gradlane"])
def test_every_arm_has_a_valid_job(arm: str) -> None:
    plan = FabricPlan.of(SCENARIOS["incast"].with_settings(arms=(arm, "ps-tcp")))
    job = gradlane.job.parse(tomli_w.dumps(jobs.document(arm, plan, 1)), "job.toml")
    assert [member.host for member in job.workers] == [host.name for host in plan.of_role("worker")]
    assert bool(job.servers) == ARMS[arm].servers
    assert job.transport.rate == plan.rate


def test_switches_sum_where_an_arm_needs_it() -> None:
    for arms, expected in ((("gradlane-switch-sum", "ps-tcp"), True), (("gradlane", "ps-tcp"), False)):
        plan = FabricPlan.of(SCENARIOS["incast"].with_settings(arms=arms))
        fabric = gradlane_controller.network.fabric_file.parse(tomli_w.dumps(plan.document()), "fabric.toml")
        assert [switch.aggregation for switch in fabric.switches] == [expected]
    job = gradlane.job.parse(tomli_w.dumps(jobs.document("gradlane-switch-sum", plan, 1)), "job.toml")
    assert place(fabric, job) == ((), "switch 's1' has no `aggregation = true` in fabric.toml")
    plan = FabricPlan.of(SCENARIOS["incast"].with_settings(arms=("gradlane-switch-sum",)))
    fabric = gradlane_controller.network.fabric_file.parse(tomli_w.dumps(plan.document()), "fabric.toml")
    assert [tree.root for tree in place(fabric, job)[0]] == ["s1"]
    plan = FabricPlan.of(SCENARIOS["asymmetric"].with_settings(arms=("gradlane-switch-sum",)))
    fabric = gradlane_controller.network.fabric_file.parse(tomli_w.dumps(plan.document()), "fabric.toml")
    job = gradlane.job.parse(tomli_w.dumps(jobs.document("gradlane-switch-sum", plan, 1)), "job.toml")
    assert [tree.root for tree in place(fabric, job)[0]] == ["spine1", "spine2"]


def test_the_last_worker_is_the_slow_one() -> None:
    slow = SCENARIOS["straggler"].slow
    assert slow is not None
    assert [slow.milliseconds(rank, 3) for rank in range(3)] == [300, 300, 900]
    assert all(scenario.slow is None for name, scenario in SCENARIOS.items() if name != "straggler")


def test_keys_differ_by_arm_and_seed() -> None:
    plan = FabricPlan.of(SCENARIOS["clean"])
    cases = [("gradlane", 1), ("gradlane", 2), ("no-drop", 1)]
    assert len({jobs.document(arm, plan, seed)["job"]["key"] for arm, seed in cases}) == 3


def test_the_lossy_link_is_one_port_in_both_directions() -> None:
    ports = FabricPlan.of(SCENARIOS["gray"]).port_settings("s1")
    assert ports[1].endswith(",loss=0.01,rx-loss=0.01")
    assert not any("loss" in ports[number] for number in (2, 3, 4))
    assert not any(
        "loss" in setting for setting in FabricPlan.of(SCENARIOS["gray"], "bmv2").port_settings("s1").values()
    )


def test_the_kernel_is_not_the_gateway() -> None:
    hosts = FabricPlan.of(SCENARIOS["burst"]).hosts
    assert [host.role for host in hosts].count("traffic") == 1
    addresses = [address for host in hosts for address in (host.mac, host.gateway_mac, host.port_mac)]
    assert len(set(addresses)) == 3 * len(hosts)


def test_a_star_keeps_its_names_and_addresses() -> None:
    plan = FabricPlan.of(SCENARIOS["incast"])
    last = plan.hosts[-1]
    assert (last.name, last.address, last.port_interface) == ("h9", "10.0.9.2", "s1-eth9")
    assert [(switch.name, switch.address) for switch in plan.switches] == [("s1", "127.0.0.1:9559")]
    assert plan.links == ()


@pytest.mark.parametrize("kind", KINDS)
def test_the_controller_reads_the_file_of_every_topology(kind: Kind) -> None:
    plan = FabricPlan.of_hosts(Topology(kind, leaves=3, spines=2), 7, 100_000_000, 64_000, "bmv2")
    fabric = gradlane_controller.network.fabric_file.parse(tomli_w.dumps(plan.document()), "fabric.toml")
    assert [switch.name for switch in fabric.switches] == list(plan.topology.switches)
    assert {(port.host, port.switch, port.number) for port in fabric.ports} == {
        (host.name, host.switch, host.port) for host in plan.hosts
    }
    assert len(fabric.link_ports) == 2 * len(plan.links)
    assert {port.rate for port in fabric.link_ports} <= {plan.rate}
    every = [*plan.port_interfaces]
    assert len(set(every)) == len(every)
    assert max(map(len, every)) <= 15  # the kernel's limit of a name
    ports = {number for switch in plan.switches for number in switch.tcp_ports}
    assert len(ports) == 2 * len(plan.switches)
    assert HTTP_PORT not in ports


def test_workers_are_spread_over_the_leaves_and_other_traffic_enters_at_the_spine() -> None:
    plan = FabricPlan.of(SCENARIOS["asymmetric"].with_settings(workers=5))
    assert [host.switch for host in plan.of_role("worker")] == ["leaf1", "leaf2", "leaf1", "leaf2", "leaf1"]
    assert [host.switch for host in plan.of_role("traffic")] == ["spine1"]
    assert [host.switch for host in plan.of_role("sink")] == ["leaf1", "leaf2"]
    taken = [(host.switch, host.port) for host in plan.hosts]
    taken += [(end.switch, end.port) for link in plan.links for end in link]
    assert len(set(taken)) == len(taken)


def test_no_interface_has_an_address_of_the_p4_switches() -> None:
    plan = FabricPlan.of_hosts(Topology("leafspine"), 4, 100_000_000, 64_000, "gradlane")
    fabric = gradlane_controller.network.fabric_file.parse(tomli_w.dumps(plan.document()), "fabric.toml")
    own = {port.mac for port in (*fabric.ports, *fabric.link_ports)}
    assert not own & {end.mac for link in plan.links for end in link}
    assert not own & {host.port_mac for host in plan.hosts}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gradlane", {"gradlane"}),
        ("bmv2", {"bmv2"}),
        ("spine1=bmv2", {"gradlane", "spine1=bmv2"}),
        ("bmv2, leaf1=gradlane", {"bmv2", "leaf1=gradlane"}),
    ],
)
def test_what_runs_as_a_switch_is_chosen_by_name(text: str, expected: set[str]) -> None:
    targets = Topology("leafspine").targets(text)
    default = next(word for word in expected if "=" not in word)
    named = dict(word.split("=") for word in expected if "=" in word)
    assert targets == {name: named.get(name, default) for name in ("leaf1", "leaf2", "spine1", "spine2")}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ovs", "switch 'ovs' is unknown; there are gradlane, bmv2"),
        ("s1=bmv2", "no switch 's1'; the leafspine of 2 leaves and 1 spine has leaf1, leaf2, spine1"),
    ],
)
def test_a_switch_that_is_not_there_is_named(text: str, words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        Topology("leafspine", spines=1).targets(text)


def test_a_topology_has_limits() -> None:
    with pytest.raises(TopologyError, match="leaves is 9; it must be from 1 to 8"):
        Topology("leafspine", leaves=9)


def test_a_scenario_says_which_switch_it_misses() -> None:
    with pytest.raises(ScenarioError, match="needs a switch 'spine1'; the star has s1"):
        SCENARIOS["asymmetric"].with_settings(topology=Topology("star"))
    with pytest.raises(ScenarioError, match="at least 2 spines"):
        SCENARIOS["spine-failure"].with_settings(topology=Topology("leafspine", spines=1))


def test_rate_and_gradients_are_scaled_alike_for_bmv2() -> None:
    scenario = SCENARIOS["incast"].for_switch("bmv2")
    assert scenario.rate == SCENARIOS["incast"].rate * SCENARIOS["incast"].bmv2_scale
    assert SCENARIOS["incast"].for_switch("gradlane") == SCENARIOS["incast"]
    sizes = [
        sum(p.numel() for p in ConvolutionalNetwork(TASKS["cnn"].width_at(s)).parameters()) for s in (1, scenario.scale)
    ]
    assert sizes[1] / sizes[0] == pytest.approx(scenario.scale, rel=0.05)
