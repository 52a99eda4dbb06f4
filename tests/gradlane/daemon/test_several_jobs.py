# SPDX-License-Identifier: Apache-2.0
"""Several jobs on the same hosts, and several processes of a job on one host."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from gradlane import AgentError
from tests.support.agents import NETWORK, Agent, agents, loopback, until
from tests.support.communicators import each, joined
from tests.support.lan import Lan
from tests.support.members import Member, job_file, members


def test_jobs_run_beside_each_other_and_one_that_fails_leaves_the_others(hosts: list[Agent], tmp_path: Path) -> None:
    addresses = loopback(3)
    # Other hosts, other ranks: host 1 is rank 1 of the first job and rank 0 of the second.
    first = job_file(tmp_path, addresses[:2], "first.toml", name="first", id=1)
    second = job_file(tmp_path, addresses[1:], "second.toml", name="second", id=2)
    before = hosts[1].status()
    with members(first, hosts[:2]) as one, members(second, hosts[1:3]) as two:
        assert {member.next()[0] for member in (*one, *two)} == {"joined"}
        jobs = hosts[1].status()["jobs"]
        assert {name: job["rank"] for name, job in jobs.items()} == {"first": 1, "second": 0}
        one[0].end()
        assert "its training process ended" in one[1].next()[0]
        assert two[0].silent(1)
        assert set(hosts[1].status()["jobs"]) == {"second"}
        for member in two:
            member.leave()
        assert [member.next()[0] for member in two] == ["closed", "closed"]
        status = hosts[1].status()
        assert status["jobs"] == {}
        assert [status[count] - before[count] for count in ("ended", "failed")] == [1, 1]


def test_a_second_instance_of_a_job_is_refused_by_name(hosts: list[Agent], tmp_path: Path) -> None:
    addresses = loopback(1)
    file = job_file(tmp_path, addresses)
    other = job_file(tmp_path, addresses, "other.toml", name="other")
    with members(file, hosts[:1]) as first:
        assert first[0].next()[0] == "joined"
        for name in (file, other):
            with Member(name, 0, hosts[0]) as second:
                said = second.next()[0]
            assert "job 'trial' (id 7) runs on this host already, as rank 0" in said
            assert "needs an id of its own" in said
        assert first[0].silent(0.2)


def test_an_agent_carries_as_many_jobs_as_its_file_says(tmp_path: Path) -> None:
    address = f"{NETWORK}.9"  # none of the shared agents'
    config = tmp_path / "agent.toml"
    config.write_text("[limits]\njobs = 1\n")
    files = [job_file(tmp_path, [address], f"{k}.toml", name=f"job{k}", id=k) for k in (1, 2)]
    with agents(tmp_path, [address], "--config", config) as [agent], Member(files[0], 0, agent) as first:
        assert first.next()[0] == "joined"
        with Member(files[1], 0, agent) as second:
            assert "runs at most 1 job(s) at once (limits.jobs of its file), now 'job1'" in second.next()[0]


def test_what_processes_share_with_an_agent_is_as_much_as_its_file_says(tmp_path: Path) -> None:
    address = f"{NETWORK}.9"
    config = tmp_path / "agent.toml"
    config.write_text('[limits]\nshared = "16MiB"\n')
    file = job_file(tmp_path, [address])
    with agents(tmp_path, [address], "--config", config) as started, joined(started, file, 1) as [only]:
        for _ in range(3):  # what is given back may be had again
            kept = [only.empty(2 << 20, np.float32), only.gradient("w", (1 << 20,))]
            with pytest.raises(AgentError, match=r"8388608 bytes of shared memory: .* of the 16777216 .*limits.shared"):
                only.empty(8 << 20, np.uint8)
            with pytest.raises(AgentError, match=r"limits.shared"):
                only.gradient("v", (2 << 20,))
            only._gradients.pop("w").tensor.close()  # pyright: ignore[reportPrivateUsage]
            assert len(kept) == 2
            del kept
        only.barrier()


def test_local_processes_join_and_leave_together(hosts: list[Agent], tmp_path: Path) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses, processes=2)
    with contextlib.ExitStack() as stack:

        def member(rank: int, process: int) -> Member:
            return stack.enter_context(Member(file, rank, hosts[rank], process))

        early = [member(0, 0), member(1, 1), member(1, 0)]
        assert early[0].silent(0.5)
        everyone = [*early, member(0, 1)]
        assert [member.next()[0] for member in everyone] == ["joined"] * 4
        for leaving in everyone[:3]:
            leaving.leave()
        assert everyone[0].silent(0.5)
        everyone[3].leave()
        assert [member.next()[0] for member in everyone] == ["closed"] * 4


def test_processes_on_hosts_with_ipv6_reduce_together(tmp_path: Path) -> None:
    with Lan(2, family=6) as lan, lan.agents(tmp_path) as hosts:
        file = job_file(tmp_path, lan.addresses, processes=2)
        with joined(hosts, file, 2, processes=2) as workers:
            arrays = [np.full(100_000, rank, np.float32) for rank in range(4)]
            results = each(workers, lambda worker: worker.all_reduce(arrays[worker.rank], op="sum"))
            assert all((result == 0 + 1 + 2 + 3).all() for result in results)


def test_the_local_process_that_dies_is_named_to_all(hosts: list[Agent], tmp_path: Path) -> None:
    addresses = loopback(2)
    file = job_file(tmp_path, addresses, processes=2)
    with contextlib.ExitStack() as stack:
        places = [(rank, process) for rank in (0, 1) for process in (0, 1)]
        everyone = [stack.enter_context(Member(file, rank, hosts[rank], process)) for rank, process in places]
        assert [member.next()[0] for member in everyone] == ["joined"] * 4
        everyone[3].end()
        for member in everyone[:3]:
            said = member.next()[0]
            assert f"rank 1 (h1, {addresses[1]}): its training process 1 of 2 ended" in said


def test_a_process_that_the_job_does_not_have_is_refused(hosts: list[Agent], tmp_path: Path) -> None:
    addresses = loopback(1)
    file = job_file(tmp_path, addresses, processes=2)
    with Member(file, 0, hosts[0], process=2) as member:
        assert "rank 0 has 2 process(es), so there is no process 2" in member.next()[0]
        assert hosts[0].status()["jobs"] == {}


def test_who_leaves_first_serves_the_others_on(hosts: list[Agent], tmp_path: Path) -> None:
    addresses = loopback(3)
    with members(job_file(tmp_path, addresses), hosts[:3]) as everyone:
        assert [member.next()[0] for member in everyone] == ["joined"] * 3
        everyone[1].leave()
        said, _ = everyone[1].next()
        assert said == "closed"  # after LEAVE_SECONDS
        everyone[1].end()
        assert everyone[0].silent(1.0)  # nobody takes its end for a fault
        assert hosts[1].status()["jobs"]["trial"]["state"] == "leaving"
        for member in (everyone[0], everyone[2]):
            member.leave()
        assert [everyone[0].next()[0], everyone[2].next()[0]] == ["closed", "closed"]
        until(lambda: hosts[1].status()["jobs"] == {})
