# SPDX-License-Identifier: Apache-2.0
"""What breaks while gradients are on their way."""

import re
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from gradlane import Communicator
from gradlane.control.signs import DEAD_SECONDS
from gradlane.daemon.liveness import LATE_SECONDS
from gradlane.errors import AgentError
from gradlane.wire import CONTROL_PORT
from tests.support.agents import PATIENCE, agents, loopback, until
from tests.support.communicators import each, join
from tests.support.lan import Lan
from tests.support.members import job_file

SECONDS = 10.0  # what is documented, whatever the fault


def all_reduce(workers: Sequence[Communicator], step: int) -> list[np.ndarray]:
    """The sums, at all workers, of arrays that differ by rank and step."""
    arrays = [np.full(200_000, rank + step, np.float32) for rank in range(len(workers))]
    pending = [w.all_reduce(a, op="sum", asynchronous=True) for w, a in zip(workers, arrays, strict=True)]
    return [p.wait(PATIENCE) for p in pending]


def test_all_reduces_survive_a_link_that_is_down_for_five_seconds(tmp_path: Path) -> None:
    with Lan(3) as lan, lan.agents(tmp_path) as hosts:
        workers = join(job_file(tmp_path, lan.addresses), hosts, len(hosts))
        all_reduce(workers, 0)
        with ThreadPoolExecutor(1) as pool:
            lan.port(1, "down")
            under_way = pool.submit(all_reduce, workers, 1)
            time.sleep(5.0)  # the fault itself
            assert not under_way.done()
            lan.port(1, "up")
            for result in under_way.result(PATIENCE):
                assert (result == 3 * 1 + 3).all()
        for result in all_reduce(workers, 2):
            assert (result == 3 * 2 + 3).all()
        each(workers, Communicator.close)


def test_datagrams_that_do_not_get_through_are_named_though_control_does(tmp_path: Path) -> None:
    with Lan(3) as lan, lan.agents(tmp_path) as hosts:
        workers = join(job_file(tmp_path, lan.addresses), hosts, len(hosts))
        all_reduce(workers, 0)
        lan.run(lan.space(1), "ip", "rule", "add", "priority", "10", "ipproto", "udp", "blackhole")
        began = time.monotonic()
        with pytest.raises(AgentError) as caught:
            all_reduce(workers, 1)
        assert time.monotonic() - began < SECONDS
        assert re.search(r"rank 1 \(h1, 10\.77\.0\.2\)", str(caught.value))
        assert "started it, but datagrams do not get through" in str(caught.value)


def test_a_rank_whose_control_connection_is_held_up_is_not_dead_while_any_datagram_comes(tmp_path: Path) -> None:
    """TCP waits ever longer after each loss, and holds back what comes later."""
    with Lan(3) as lan, lan.agents(tmp_path) as hosts:
        pairs = [(hosts[0], hosts[1]), (hosts[0], hosts[2])]
        files = [
            job_file(tmp_path, [host.address for host in pair], f"{name}.toml", name=name, id=number)
            for number, (name, pair) in enumerate(zip(("heartbeats", "gradients"), pairs, strict=True), 1)
        ]
        _idle, busy = [join(file, pair, len(pair)) for file, pair in zip(files, pairs, strict=True)]
        for rank in (1, 2):
            lan.run(lan.space(rank), "ip", "rule", "add", "priority", "10", "ipproto", "tcp", "blackhole")
        udp = ("ipproto", "udp", "dport", f"{CONTROL_PORT}")
        lan.run(lan.space(2), "ip", "rule", "add", "priority", "10", *udp, "blackhole")
        deadline = time.monotonic() + DEAD_SECONDS + 2
        step = 0
        while time.monotonic() < deadline:
            for result in all_reduce(busy, step):
                assert (result == 2 * step + 1).all()
            step += 1
            time.sleep(0.2)  # the pace of a training's steps
        jobs = hosts[0].status()["jobs"]
        assert {name: job["peers"]["1"]["control"] for name, job in jobs.items()} == {
            "heartbeats": "connected",
            "gradients": "connected",
        }


def test_a_late_worker_is_named_by_who_waits_and_the_job_goes_on_when_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    addresses = loopback(2)
    with agents(tmp_path, addresses) as hosts:
        workers = join(job_file(tmp_path, addresses), hosts, len(hosts))
        began = time.monotonic()
        waits = workers[0].all_reduce(np.ones(1000, np.float32), op="sum", asynchronous=True)
        until(lambda: caplog.messages)
        assert LATE_SECONDS - 1 < time.monotonic() - began < LATE_SECONDS + 5
        named = rf"has made no progress for 1\d s: rank 1 \(h1, {addresses[1]}\) did not start it; the job waits 60 s"
        assert re.search(named, caplog.text)
        assert re.search(named, hosts[0].status()["jobs"]["trial"]["late"])
        until(lambda: any(re.search(named, line) for line in hosts[0].log), lambda: hosts[0].log)
        workers[1].all_reduce(np.ones(1000, np.float32), op="sum")
        assert (waits.wait(PATIENCE) == 2).all()
        until(lambda: "late" not in hosts[0].status()["jobs"]["trial"])
        each(workers, Communicator.close)


def test_a_worker_that_does_not_come_ends_the_job_after_its_patience(tmp_path: Path) -> None:
    addresses = loopback(2)
    with agents(tmp_path, addresses) as hosts:
        workers = join(job_file(tmp_path, addresses, patience=10), hosts, len(hosts))
        with pytest.raises(AgentError, match=r"rank 1 .* did not start it; the job waits 10 s"):
            workers[0].all_reduce(np.ones(1000, np.float32), op="sum", asynchronous=True).wait(PATIENCE)
        with pytest.raises(AgentError, match=r"rank 1 .* did not start it"):
            workers[1].barrier()
