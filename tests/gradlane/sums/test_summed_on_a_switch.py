# SPDX-License-Identifier: Apache-2.0
"""Jobs whose gradients gradlane-switch sums, as the controller has set it up. It loses frames, and is killed. It needs
root."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.gradlane.sums.test_summed_jobs import HOSTS, SIZES, TRANSPORT, Steps, counts, sums
from tests.support import members, zygote
from tests.support.agents import Agent, running, until
from tests.support.communicators import joined
from tests.support.counted_steps import LINES, CountedSteps
from tests.support.namespaces import Network
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("ethtool")]

P4RUNTIME = "127.0.0.1:9559"  # in the switch's namespace
LOSS, PUSH = 0.02, 0.1  # of the frames of one link; of a message
SLICE6 = 320  # elements of a slice over IPv6: ten words in a packet of 1500 bytes
START_SECONDS = 180.0  # for a switch that has to compile its program, on a busy machine
HEAD = f'[[switch]]\nname = "s1"\ndevice_id = 1\naddress = "{P4RUNTIME}"\naggregation = true\n'


def fabric(folder: Path) -> Path:
    """Host k - 1 of the job is host k of the network."""
    text = HEAD
    for k in range(1, HOSTS + 1):
        text += (
            f'[[port]]\nnumber = {k}\nhost = "h{k - 1}"\nmac = "02:00:00:00:00:ff"\nhost_mac = "02:00:00:00:00:0{k}"\n'
            f'address = "10.0.{k}.2"\nprefix = "10.0.{k}.0/24"\ngateway = "10.0.{k}.1"\naddress6 = "fd00:{k}::2"\n'
            f'prefix6 = "fd00:{k}::/64"\ngateway6 = "fd00:{k}::1"\nrate = "1gbit"\nbuffer = "256kB"\n'
        )
    file = folder / "fabric.toml"
    file.write_text(text)
    return file


@contextlib.contextmanager
def process(log: Path, *argv: object) -> Iterator["subprocess.Popen[bytes]"]:
    """A process until the end of the block, unless it is killed before."""
    with log.open("ab") as out:
        made = zygote.start(list(map(str, argv)), stdout=out, stderr=subprocess.STDOUT)
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


class OnASwitch:
    """A network of hosts with agents around a gradlane-switch, whose controller knows two jobs: `exact` over IPv4, and
    `lossy` with a budget over IPv6. The link of rank 0 loses frames in both directions."""

    def __init__(self, folder: Path, network: Network, stack: contextlib.ExitStack) -> None:
        self._stack, self._log = stack, folder / "switch.log"
        inside = network.inside(network.switch)
        addresses = [f"10.0.{k}.2" for k in range(1, HOSTS + 1)]
        self.exact = members.job_file(folder, addresses, lines=TRANSPORT)
        network.add_ipv6()
        addresses6 = [f"fd00:{k}::2" for k in range(1, HOSTS + 1)]
        lossy = TRANSPORT.replace("239.1.0.1", "ff18::1") + LINES.format(push=PUSH) + "\n[slots]\nbase = 4096"
        self.lossy = members.job_file(folder, addresses6, "lossy.toml", name="lossy", id=8, lines=lossy)
        self._argv = [*inside, sys.executable, "-m", "gradlane_switch", "--device-id", 1]
        self._argv += ["--grpc-server-addr", P4RUNTIME]
        for k in range(1, HOSTS + 1):
            loss = f",loss={LOSS},rx-loss={LOSS}" if k == 1 else ""
            self._argv += ["-i", f"{k}@s{k},rate=1gbit,buffer=256kB{loss}"]
        self.switch = self.start()
        controller = (*inside, sys.executable, "-m", "gradlane_controller.cli", "run", "--http", "127.0.0.1:9560")
        log = folder / "controller.log"
        files = ("--fabric", fabric(folder), "--job", self.exact, "--job", self.lossy)
        running_controller = stack.enter_context(process(log, *controller, *files))
        wait_for(log, "ready: ", [self.switch, running_controller])
        agents = (
            Agent(at, folder / f"{k}.sock", "--address", at6, prefix=network.inside(network.host(k)))
            for k, (at, at6) in enumerate(zip(addresses, addresses6, strict=True), 1)
        )
        self.hosts = stack.enter_context(running(*agents))

    def start(self) -> "subprocess.Popen[bytes]":
        self.switch = self._stack.enter_context(process(self._log, *self._argv))
        return self.switch


@pytest.fixture(scope="module", name="at")
def _at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnASwitch]:
    with Network(HOSTS, "u") as network, contextlib.ExitStack() as stack:
        yield OnASwitch(tmp_path_factory.mktemp("switch"), network, stack)


@pytest.mark.timed
def test_a_budget_holds_over_a_link_that_loses_and_what_is_lost_is_not_waited_for(at: OnASwitch) -> None:
    """The results say who is in them; whoever is not counts against its budget."""
    with joined(at.hosts, at.lossy, HOSTS) as ranks:
        steps = CountedSteps(ranks, PUSH)
        for _ in range(40):
            steps.step()
        found = [host.status()["jobs"]["lossy"] for host in at.hosts]
        assert [it["sums"]["by_switch"] for it in found] == [True] * HOSTS
        assert steps.missing[0] > 0
        assert sum(it["counts"]["sums_closed"] for it in found) > 0
        for rank, it in enumerate(found):
            assert it["counts"]["sums_over_budget"] == 0
            if not it["sums"]["fallbacks"]:  # else hosts have lost some, too
                assert it["counts"]["sums_left_out"] * SLICE6 <= steps.missing[rank]


@pytest.mark.timed
def test_a_job_outlives_a_switch_that_is_killed_and_comes_back(at: OnASwitch) -> None:
    """Every result is exact: those by the switch, those that it left behind half done, and those by hosts."""
    with joined(at.hosts, at.exact, HOSTS) as ranks:
        steps = Steps(ranks)
        for _ in range(20):
            steps.step()
        for host in at.hosts:
            assert (sums(host)["by_switch"], sums(host)["fallbacks"]) == (True, 0)
            assert counts(host)["summed_bytes"] == 19 * 4 * sum(SIZES)
        at.switch.send_signal(signal.SIGKILL)
        at.switch.wait()
        at.start()
        for _ in range(10):
            steps.step()
        # It may be back before hosts take over, and then sums what is sent once more.
        (gone,) = {sums(host)["fallbacks"] for host in at.hosts}
        assert gone <= 1
        steps.until(lambda: all(sums(host)["by_switch"] for host in at.hosts))
        before = [counts(host)["summed_bytes"] for host in at.hosts]
        for _ in range(10):
            steps.step()
        until(lambda: all(counts(host)["summed_bytes"] > b for host, b in zip(at.hosts, before, strict=True)))
        assert [sums(host)["fallbacks"] for host in at.hosts] == [gone] * HOSTS
