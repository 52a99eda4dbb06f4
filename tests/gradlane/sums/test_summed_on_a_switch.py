# SPDX-License-Identifier: Apache-2.0
"""A job whose gradients gradlane-switch sums, as the controller has set it up, and that is killed. It needs root."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.gradlane.sums.test_summed_jobs import HOSTS, SIZES, TRANSPORT, Steps, counts, sums
from tests.support import members
from tests.support.agents import Agent, running, until
from tests.support.communicators import joined
from tests.support.namespaces import Network
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("ethtool")]

P4RUNTIME = "127.0.0.1:9559"  # in the switch's namespace
START_SECONDS = 180.0  # for a switch that has to compile its program, on a busy machine
HEAD = f'[[switch]]\nname = "s1"\ndevice_id = 1\naddress = "{P4RUNTIME}"\naggregation = true\n'


def fabric(folder: Path) -> Path:
    """Host k - 1 of the job is host k of the network."""
    text = HEAD
    for k in range(1, HOSTS + 1):
        text += (
            f'[[port]]\nnumber = {k}\nhost = "h{k - 1}"\nmac = "02:00:00:00:00:ff"\nhost_mac = "02:00:00:00:00:0{k}"\n'
            f'address = "10.0.{k}.2"\nprefix = "10.0.{k}.0/24"\ngateway = "10.0.{k}.1"\nrate = "1gbit"\n'
            'buffer = "256kB"\n'
        )
    file = folder / "fabric.toml"
    file.write_text(text)
    return file


@contextlib.contextmanager
def process(log: Path, *argv: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A process until the end of the block, unless it is killed before."""
    with log.open("ab") as out:
        made = subprocess.Popen(list(map(str, argv)), stdout=out, stderr=subprocess.STDOUT)
    try:
        yield made
    finally:
        made.terminate()
        made.wait()


def wait_for(log: Path, words: str, others: Sequence["subprocess.Popen[bytes]"]) -> None:
    end = time.monotonic() + START_SECONDS
    while words not in log.read_text():
        assert time.monotonic() < end, log.read_text()
        assert all(it.poll() is None for it in others), log.read_text()
        time.sleep(0.1)


@pytest.mark.alone
def test_a_job_outlives_a_switch_that_is_killed_and_comes_back(tmp_path: Path) -> None:
    """Every result is exact: those by the switch, those that it left behind half done, and those by hosts."""
    with Network(HOSTS, "u") as network, contextlib.ExitStack() as stack:
        inside = network.inside(network.switch)
        ports = [word for k in range(1, HOSTS + 1) for word in ("-i", f"{k}@s{k},rate=1gbit,buffer=256kB")]
        switch = (*inside, sys.executable, "-m", "gradlane_switch", "--device-id", 1, "--grpc-server-addr", P4RUNTIME)
        file = members.job_file(tmp_path, [f"10.0.{k}.2" for k in range(1, HOSTS + 1)], lines=TRANSPORT)
        controller = (*inside, sys.executable, "-m", "gradlane_controller.cli", "run", "--http", "127.0.0.1:9560")
        log = tmp_path / "controller.log"
        first = stack.enter_context(process(tmp_path / "switch.log", *switch, *ports))
        files = ("--fabric", fabric(tmp_path), "--job", file)
        running_controller = stack.enter_context(process(log, *controller, *files))
        wait_for(log, "ready: ", [first, running_controller])
        agents = (
            Agent(f"10.0.{k}.2", tmp_path / f"{k}.sock", prefix=network.inside(network.host(k)))
            for k in range(1, HOSTS + 1)
        )
        hosts = stack.enter_context(running(*agents))
        ranks = stack.enter_context(joined(hosts, file, HOSTS))
        steps = Steps(ranks)
        for _ in range(20):
            steps.step()
        for host in hosts:
            assert (sums(host)["by_switch"], sums(host)["fallbacks"]) == (True, 0)
            assert counts(host)["summed_bytes"] == 19 * 4 * sum(SIZES)
        first.send_signal(signal.SIGKILL)
        first.wait()
        stack.enter_context(process(tmp_path / "switch.log", *switch, *ports))
        for _ in range(10):
            steps.step()
        assert [(sums(host)["by_switch"], sums(host)["fallbacks"]) for host in hosts] == [(False, 1)] * HOSTS
        steps.until(lambda: all(sums(host)["by_switch"] for host in hosts))
        before = [counts(host)["summed_bytes"] for host in hosts]
        for _ in range(10):
            steps.step()
        until(lambda: all(counts(host)["summed_bytes"] > b for host, b in zip(hosts, before, strict=True)))
        assert [sums(host)["fallbacks"] for host in hosts] == [1] * HOSTS
