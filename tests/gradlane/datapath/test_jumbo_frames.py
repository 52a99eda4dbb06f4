# SPDX-License-Identifier: Apache-2.0
"""A job among hosts and a gradlane-switch with an MTU of 9000 bytes, as the controller has set it up: its slices are of
that size, and all that counts slices still holds."""

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support import members, zygote
from tests.support.agents import PATIENCE, Agent, running
from tests.support.communicators import Ranks, each, joined
from tests.support.namespaces import Network, ip
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("ethtool")]

HOSTS, MTU, SLICE = 3, 9000, 8936
P4RUNTIME = "127.0.0.1:9559"  # in the switch's namespace
START_SECONDS = 180.0  # for a switch that has to compile its program, on a busy machine
LOSS, PUSH = 0.03, 0.25  # of the frames of one link; of a message
ELEMENTS = HOSTS * 40 * SLICE // 4  # 40 slices for each owner
STEPS = 12
LINKS = 'rate = "1gbit"\nbuffer = "256kB"\n'


def fabric(folder: Path) -> Path:
    file = folder / "fabric.toml"
    text = f'[[switch]]\nname = "s1"\ndevice_id = 1\naddress = "{P4RUNTIME}"\n'
    for k in range(1, HOSTS + 1):
        text += (
            f'[[port]]\nnumber = {k}\nhost = "h{k - 1}"\nmac = "02:00:00:00:00:ff"\nhost_mac = "02:00:00:00:00:0{k}"\n'
            f'address = "10.0.{k}.2"\nprefix = "10.0.{k}.0/24"\ngateway = "10.0.{k}.1"\n{LINKS}'
        )
    file.write_text(text)
    return file


@contextlib.contextmanager
def process(log: Path, words: str, *argv: object) -> Iterator[None]:
    """A process that has said these words, until the end of the block."""
    with log.open("ab") as out:
        made = zygote.start(list(map(str, argv)), stdout=out, stderr=subprocess.STDOUT)
    try:
        end = time.monotonic() + START_SECONDS
        while words not in log.read_text():
            assert time.monotonic() < end, log.read_text()
            assert made.poll() is None, log.read_text()
            time.sleep(0.1)
        yield
    finally:
        made.terminate()
        made.wait()


class Fabric:
    """Hosts with agents around the switch, and two jobs: `exact`, and `lossy` with a budget."""

    def __init__(self, folder: Path, network: Network, stack: contextlib.ExitStack) -> None:
        for k in range(1, HOSTS + 1):
            ip("-n", network.switch, "link", "set", f"s{k}", "mtu", str(MTU))
            ip("-n", network.host(k), "link", "set", "eth0", "mtu", str(MTU))
        addresses = [f"10.0.{k}.2" for k in range(1, HOSTS + 1)]
        lines = 'buffer = "256kB"\ncollective = "direct"\n'
        lossy = f"{lines}[loss]\npush = {PUSH}\nerror_feedback = false\n[slots]\nbase = 4096"
        self.exact = members.job_file(folder, addresses, lines=lines)
        self.lossy = members.job_file(folder, addresses, "lossy.toml", name="lossy", id=8, lines=lossy)
        inside = network.inside(network.switch)
        switch = [*inside, sys.executable, "-m", "gradlane_switch", "--device-id", 1, "--grpc-server-addr", P4RUNTIME]
        for k in range(1, HOSTS + 1):
            impaired = f",loss={LOSS},rx-loss={LOSS}" if k == 1 else ""
            switch += ["-i", f"{k}@s{k},rate=1gbit,buffer=256kB{impaired}"]
        controller = [*inside, sys.executable, "-m", "gradlane_controller.cli", "run", "--http", "127.0.0.1:9560"]
        controller += ["--fabric", fabric(folder), "--job", self.exact, "--job", self.lossy]
        stack.enter_context(process(folder / "switch.log", "", *switch))
        stack.enter_context(process(folder / "controller.log", "ready: ", *controller))
        agents = (
            Agent(at, folder / f"{k}.sock", prefix=network.inside(network.host(k))) for k, at in enumerate(addresses, 1)
        )
        self.hosts = stack.enter_context(running(*agents))


@pytest.fixture(scope="module", name="at")
def _at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fabric]:
    with Network(HOSTS, "j") as network, contextlib.ExitStack() as stack:
        yield Fabric(tmp_path_factory.mktemp("jumbo"), network, stack)


def sums(ranks: Ranks, values: list[np.ndarray]) -> list[np.ndarray]:
    """What each rank has as the sum of what all contribute."""
    return each(
        ranks,
        lambda it: it.all_reduce(values[it.rank].copy(), op="sum", name="w", asynchronous=True).wait(PATIENCE),
    )


@pytest.mark.alone
def test_exact_results_over_a_link_that_loses(at: Fabric) -> None:
    draw = np.random.default_rng(1)
    with joined(at.hosts, at.exact, HOSTS) as ranks:
        for _ in range(STEPS):
            values = [draw.normal(size=ELEMENTS).astype(np.float32) for _ in ranks]
            for result in sums(ranks, values):
                np.testing.assert_array_equal(result, values[0] + values[1] + values[2])
        for host in at.hosts:
            status = host.status()["jobs"]["trial"]
            counts = status["counts"]
            assert status["slice_bytes"] == SLICE
            # Pushes and results, and what was repaired; of 1,432 bytes it were six times as many.
            once = STEPS * 2 * (HOSTS - 1) * ELEMENTS * 4 // SLICE // HOSTS
            assert once <= counts["slices_sent"] < 2 * once
            assert counts["slices_lost"] == 0
        assert sum(host.status()["jobs"]["trial"]["counts"]["slices_repaired"] for host in at.hosts) > 0


@pytest.mark.alone
def test_a_budget_of_large_slices_holds(at: Fabric) -> None:
    """Who is in an element is told by its value: rank r contributes 4^r."""
    values = [np.full(ELEMENTS, 4.0**rank, np.float32) for rank in range(HOSTS)]
    most = int(PUSH * (ELEMENTS // HOSTS * 4 // SLICE)) * (SLICE // 4)  # elements of a message to an owner
    missing = 0
    with joined(at.hosts, at.lossy, HOSTS) as ranks:
        for _ in range(STEPS):
            results = sums(ranks, values)
            for result in results[1:]:
                np.testing.assert_array_equal(result, results[0])
            left = results[0].astype(int)
            for _rank in range(HOSTS):
                lost = (left % 4 == 0).reshape(HOSTS, -1).sum(axis=1)  # by owner
                assert lost.max() <= most
                assert not np.any(lost % (SLICE // 4)), "slices are lost as a whole"
                missing += int(lost.sum())
                left = left // 4
            assert not left.any()
        found = [host.status()["jobs"]["lossy"] for host in at.hosts]
    assert missing > 0
    assert [it["slice_bytes"] for it in found] == [SLICE] * HOSTS
    assert sum(it["counts"]["slices_lost"] for it in found) > 0
    assert [it["counts"]["budget_violations"] for it in found] == [0] * HOSTS
