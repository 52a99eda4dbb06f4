# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job find each other and what they find out about the paths between them."""

import asyncio
import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from pathlib import Path

import pytest

from gradlane.control.overlay import neighbours
from gradlane.daemon import agent
from gradlane.daemon.config import AgentConfig
from tests.support.agents import agents, loopback
from tests.support.lan import Lan
from tests.support.members import Member, job_file, members


def slice_bytes(agent) -> int:
    return agent.status()["jobs"]["trial"]["slice_bytes"]


@pytest.mark.timed
def test_a_job_is_joined_within_a_second_whoever_comes_first(tmp_path: Path) -> None:
    addresses = loopback(4)
    file = job_file(tmp_path, addresses)
    with agents(tmp_path, addresses) as hosts, contextlib.ExitStack() as stack:
        early = [stack.enter_context(Member(file, rank, hosts[rank])) for rank in (3, 1)]
        assert early[0].silent(1.0)  # it waits for the others
        began = time.monotonic()
        late = [stack.enter_context(Member(file, rank, hosts[rank])) for rank in (0, 2)]
        for member in (*early, *late):
            assert member.next()[0] == "joined"
        assert time.monotonic() - began < 1.0
        status = hosts[2].status()["jobs"]["trial"]
        assert status["state"] == "running"
        assert {peer["control"] for peer in status["peers"].values()} == {"connected"}
        assert 0 < status["conditions"]["latency"] < 0.1
        assert 0 < status["conditions"]["rate"] <= 1e9
        assert slice_bytes(hosts[2]) == 8936  # jumbo frames: loopback takes more
        hosts[2].wait_for("all-reduce of 1 MiB: ")


@pytest.mark.parametrize(("family", "mtus", "largest"), [(4, (9000, 9000, 9000), 8936), (6, (1500, 9000, 1500), 1416)])
def test_slices_are_as_large_as_every_path_allows(tmp_path: Path, family: int, mtus: tuple[int], largest: int) -> None:
    with Lan(3, family) as lan:
        for k, mtu in enumerate(mtus):
            lan.port(k, "mtu", str(mtu))
            lan.run(lan.space(k), "ip", "link", "set", "eth0", "mtu", str(mtu))
        with lan.agents(tmp_path) as hosts, members(job_file(tmp_path, lan.addresses), hosts) as joining:
            assert [member.next()[0] for member in joining] == ["joined"] * 3
            assert [slice_bytes(agent) for agent in hosts] == [largest] * 3


def test_a_narrow_path_that_says_nothing_is_found(tmp_path: Path) -> None:
    with Lan(2) as lan:
        # The hosts take 9000 bytes, what is between them 4321, and drops without a word what is larger.
        for k in range(2):
            lan.run(lan.space(k), "ip", "link", "set", "eth0", "mtu", "9000")
            lan.port(k, "mtu", "4321")
        with lan.agents(tmp_path) as hosts:
            with members(job_file(tmp_path, lan.addresses), hosts) as joining:
                answers = [member.next() for member in joining]
                assert [said for said, _ in answers] == ["joined"] * 2
                assert max(seconds for _, seconds in answers) < 2.0
                assert {slice_bytes(agent) for agent in hosts} <= {4248, 4256}  # 4321 less 64, whole elements
            file = job_file(tmp_path, lan.addresses, lines="slice_bytes = 8000", id=8)
            with members(file, hosts) as joining:
                said = joining[0].next()[0]
            assert "transport.slice_bytes = 8000" in said
            assert "carries packets of 43" in said
            assert "to rank " in said


def test_the_rate_of_a_slow_port_is_measured(tmp_path: Path) -> None:
    with Lan(3) as lan:
        queue = ("tbf", "rate", "100mbit", "burst", "1600", "limit", "200k")
        lan.run(lan.space(1), "tc", "qdisc", "add", "dev", "eth0", "root", *queue)
        with lan.agents(tmp_path) as hosts, members(job_file(tmp_path, lan.addresses), hosts) as joining:
            assert [member.next()[0] for member in joining] == ["joined"] * 3
            rates = {agent.status()["jobs"]["trial"]["conditions"]["rate"] for agent in hosts}
        assert len(rates) == 1
        assert 50e6 < rates.pop() < 150e6


def test_filtered_datagrams_are_named_though_control_connections_stand(tmp_path: Path) -> None:
    with Lan(2) as lan:
        lan.run(lan.space(1), "ip", "rule", "add", "priority", "10", "ipproto", "udp", "blackhole")
        with lan.agents(tmp_path) as hosts, members(job_file(tmp_path, lan.addresses), hosts) as joining:
            said, seconds = joining[0].next()
        # Of two, each sees the other silent.
        assert re.match(r"rank ([01]) \(h\1, 10\.77\.0\..\) does not answer datagrams on UDP port 47401", said)
        assert seconds < 5


def test_who_does_not_join_is_named_while_the_others_wait_and_when_their_patience_is_over(tmp_path: Path) -> None:
    addresses = loopback(3)
    with agents(tmp_path, addresses[:2]) as hosts, contextlib.ExitStack() as stack:
        file = job_file(tmp_path, addresses, patience=12)
        joining = [stack.enter_context(Member(file, rank, hosts[rank])) for rank in (0, 1)]
        said, seconds = joining[0].next()
        missing = f"rank 2 (h2, {addresses[2]})"
        assert said == f"after 12 s these have not joined the job: {missing}"
        assert 12 <= seconds < 15
        assert joining[0].notices == [
            f"after 10 s these have not joined the job, which waits 12 s (job.patience): {missing}"
        ]


def test_many_ranks_join_without_getting_into_each_others_way(tmp_path: Path) -> None:
    """Agents in one process, so that it is the work of the joins that is measured, and not that of starting them."""
    ranks = 16
    addresses = loopback(ranks)
    file = job_file(tmp_path, addresses)
    configs = [AgentConfig((ip_address(address),), tmp_path / f"{k}.sock") for k, address in enumerate(addresses)]

    async def join() -> list[str]:
        loop = asyncio.get_running_loop()
        async with contextlib.AsyncExitStack() as stack:
            hosts = [agent.Agent(config) for config in configs]
            for host in hosts:
                await stack.enter_async_context(host.serving())
            pool = stack.enter_context(ThreadPoolExecutor(ranks))
            joining = [stack.enter_context(Member(file, rank, config)) for rank, config in enumerate(configs)]
            answers = await asyncio.gather(*(loop.run_in_executor(pool, member.next) for member in joining))
            counts = [host.status()["control"] for host in hosts]
            calls = [{*neighbours(rank, range(ranks), ranks), 0} - set(range(rank, ranks)) for rank in range(ranks)]
            taken = [sum(rank in called for called in calls) for rank in range(ranks)]
            assert [count["calls_accepted"] for count in counts] == taken
            assert [count["calls_broken"] for count in counts] == [0] * ranks
            return [said for said, _ in answers]

    used = time.process_time()
    assert asyncio.run(join()) == ["joined"] * ranks
    # About 4 ms for both ends of each of 59 pairs: TLS, probes of the path, heartbeats.
    assert time.process_time() - used < 2
