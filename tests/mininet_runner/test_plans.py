# SPDX-License-Identifier: Apache-2.0
"""Scenarios, the fabric's plan, and the files that the controller reads."""

import pytest
import tomli_w

import gradlane.job
import jobs
from plan import FabricPlan
from scenarios import SCENARIOS, ScenarioError
from training.arms import ARMS


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


def test_tokens_differ_by_arm_and_seed() -> None:
    plan = FabricPlan.of(SCENARIOS["clean"])
    cases = [("gradlane", 1), ("gradlane", 2), ("no-drop", 1)]
    assert len({jobs.document(arm, plan, seed)["job"]["token"] for arm, seed in cases}) == 3


def test_the_lossy_link_is_one_port_in_both_directions() -> None:
    ports = FabricPlan.of(SCENARIOS["gray"]).port_descriptions()
    assert ports[0].endswith(",loss=0.01,rx-loss=0.01")
    assert not any("loss" in port for port in ports[1:])


def test_the_kernel_is_not_the_gateway() -> None:
    hosts = FabricPlan.of(SCENARIOS["burst"]).hosts
    assert [host.role for host in hosts].count("traffic") == 1
    addresses = [address for host in hosts for address in (host.mac, host.gateway_mac, host.port_mac)]
    assert len(set(addresses)) == 3 * len(hosts)
