# SPDX-License-Identifier: Apache-2.0
"""A job of two racks whose gradients leaves and spines of gradlane-switch sum, and a spine that dies. It needs root."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.gradlane.sums.test_summed_jobs import SIZES, TRANSPORT, Steps, counts, sums
from tests.gradlane.sums.test_summed_on_a_switch import process, wait_for
from tests.support import members
from tests.support.agents import PATIENCE, Agent, running, until
from tests.support.communicators import joined
from tests.support.namespaces import Network, ip
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("ethtool")]

HOSTS = 4  # two at each leaf
LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
HTTP = "127.0.0.1:9560"
LINKS = [(leaf, spine) for leaf in (1, 2) for spine in (1, 2)]


class Racks(Network):
    """Two leaves of two hosts, two spines; all switches are in one namespace, with a link between each two."""

    def _build(self) -> None:
        super()._build()
        for leaf, spine in LINKS:
            ends = f"l{leaf}s{spine}", f"s{spine}l{leaf}"
            ip("-n", self.switch, "link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            for end in ends:
                self.run(self.switch, "ethtool", "-K", end, "tx", "off", "rx", "off", "gso", "off", "gro", "off")
                ip("-n", self.switch, "link", "set", end, "up")

    def links(self, spine: str, state: str) -> None:
        """Of a spine, all of them: up or down."""
        for leaf in (1, 2):
            ip("-n", self.switch, "link", "set", f"s{spine[-1]}l{leaf}", state)


def fabric(folder: Path) -> Path:
    """Host k - 1 of the job is host k of the network."""
    text = "".join(
        f'[[switch]]\nname = "{name}"\naddress = "127.0.0.1:{9600 + n}"\naggregation = true\n'
        for n, name in enumerate((*LEAVES, *SPINES))
    )
    size = 'rate = "1gbit"\nbuffer = "256kB"\n'
    for k in range(1, HOSTS + 1):
        text += (
            f'[[port]]\nswitch = "leaf{(k + 1) // 2}"\nnumber = {k}\nhost = "h{k - 1}"\nmac = "02:00:00:00:00:ff"\n'
            f'host_mac = "02:00:00:00:00:0{k}"\naddress = "10.0.{k}.2"\nprefix = "10.0.{k}.0/24"\n'
            f'gateway = "10.0.{k}.1"\n{size}'
        )
    for leaf, spine in LINKS:
        text += f'[[link]]\nends = ["leaf{leaf}:{10 + spine}", "spine{spine}:{leaf}"]\n{size}'
    file = folder / "fabric.toml"
    file.write_text(text)
    return file


def result_counts(ask: "Asked") -> dict[str, int]:
    """By switch: slices whose sum it has made, or passed on."""
    return {row["switch"]: row["events"]["result"] for row in ask("counters")["sums"] if row["job"]}


@contextlib.contextmanager
def switch(network: Racks, name: str, folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """That one, until the end of the block."""
    number = int(name[-1])
    if name in LEAVES:
        ports = {k: f"s{k}" for k in (2 * number - 1, 2 * number)} | {10 + n: f"l{number}s{n}" for n in (1, 2)}
    else:
        ports = {leaf: f"s{number}l{leaf}" for leaf in (1, 2)}
    index = (*LEAVES, *SPINES).index(name)
    words = [word for k, interface in ports.items() for word in ("-i", f"{k}@{interface},rate=1gbit,buffer=256kB")]
    argv = (*network.inside(network.switch), sys.executable, "-m", "gradlane_switch", "--device-id", index + 1)
    argv += ("--grpc-server-addr", f"127.0.0.1:{9600 + index}", "--cpu-port", 255, "--admin", folder / f"{name}.admin")
    with process(folder / f"{name}.log", *argv, *words) as made:
        yield made


class Asked:
    """The controller's answers."""

    def __init__(self, network: Racks) -> None:
        self._command = [*network.inside(network.switch), sys.executable, "-m", "gradlane_controller.cli"]

    def __call__(self, what: str) -> Any:
        done = subprocess.run([*self._command, what, "--json", "--http", HTTP], capture_output=True, check=True)
        return json.loads(done.stdout)

    def roots(self) -> dict[str, int]:
        return self("status")["jobs"][0]["sums"]["roots"]


class Job:
    """Of four workers over the racks, with a controller; its agents, and steps of it. Until the end of the `stack`."""

    def __init__(self, folder: Path, name: str, stack: contextlib.ExitStack) -> None:
        self.network = stack.enter_context(Racks(HOSTS, name))
        self.switches = {it: stack.enter_context(switch(self.network, it, folder)) for it in (*LEAVES, *SPINES)}
        file = members.job_file(folder, [f"10.0.{k}.2" for k in range(1, HOSTS + 1)], lines=TRANSPORT)
        inside = self.network.inside(self.network.switch)
        controller = (*inside, sys.executable, "-m", "gradlane_controller.cli", "run", "--http", HTTP)
        log = folder / "controller.log"
        stack.enter_context(process(log, *controller, "--fabric", fabric(folder), "--job", file))
        wait_for(log, "ready: ", list(self.switches.values()))
        self.ask = Asked(self.network)
        agents = (
            Agent(f"10.0.{k}.2", folder / f"{k}.sock", prefix=self.network.inside(self.network.host(k)))
            for k in range(1, HOSTS + 1)
        )
        self.hosts = stack.enter_context(running(*agents))
        self.steps = Steps(stack.enter_context(joined(self.hosts, file, HOSTS)))
        self.steps.until(lambda: all(sums(host)["by_switch"] and counts(host)["summed_bytes"] for host in self.hosts))

    def kill_spine1(self) -> None:
        """And the links to it go down."""
        self.switches["spine1"].send_signal(signal.SIGKILL)
        self.network.links("spine1", "down")
        self.switches["spine1"].wait()


@pytest.mark.alone
def test_what_one_rack_has_of_a_spine_that_dies_the_other_has_from_its_leaf(tmp_path: Path) -> None:
    """Hosts need not sum. No clock runs while slices move to the other spine, as all agents are stopped."""
    with contextlib.ExitStack() as stack:
        job = Job(tmp_path, "r", stack)
        set_loss = (
            *job.network.inside(job.network.switch),
            sys.executable,
            "-m",
            "gradlane_switch",
            "port",
            "set",
            "2",
        )
        subprocess.run([*set_loss, "loss=1", "--admin", tmp_path / "spine1.admin"], check=True)
        sent, fallbacks = counts(job.hosts[0])["sums_sent"], [sums(host)["fallbacks"] for host in job.hosts]
        reruns = [counts(host)["sum_reruns"] for host in job.hosts]
        job.steps.number += 1
        values = [job.steps.contribution(rank, SIZES[1]) for rank in range(HOSTS)]

        def begin(rank: int) -> Any:
            return job.steps.ranks[rank].all_reduce(values[rank], op="sum", name=f"w{SIZES[1]}", asynchronous=True)

        pending = [begin(0)]
        until(lambda: counts(job.hosts[0])["sums_sent"] >= sent + 2)  # all, in one burst
        job.hosts[0].kill(signal.SIGSTOP)  # rank 0 leads: nobody decides anything from now on
        pending += [begin(rank) for rank in range(1, HOSTS)]
        until(pending[1].done)
        assert not pending[2].done()
        assert not pending[3].done()
        for host in job.hosts[1:]:
            host.kill(signal.SIGSTOP)
        job.kill_spine1()
        until(lambda: job.ask.roots() == {"spine2": 16})
        time.sleep(1)  # that is the plan; the leaves have their entries soon after
        for host in job.hosts:
            host.kill(signal.SIGCONT)
        for it in pending:
            np.testing.assert_array_equal(it.wait(PATIENCE), sum(values))
        for _ in range(5):
            job.steps.step()
        assert all(sums(host)["by_switch"] for host in job.hosts)
        assert [sums(host)["fallbacks"] for host in job.hosts] == fallbacks
        assert [counts(host)["sum_reruns"] for host in job.hosts] == reruns


@pytest.mark.alone
def test_a_job_of_two_racks_outlives_a_spine(tmp_path: Path) -> None:
    """Every result is exact; slices go by both spines, by one, and by both again."""
    with contextlib.ExitStack() as stack:
        job = Job(tmp_path, "f", stack)
        network, ask, hosts, steps = job.network, job.ask, job.hosts, job.steps
        for _ in range(10):
            steps.step()
        events = {row["switch"]: row["events"] for row in ask("counters")["sums"] if row["job"]}
        slices = events["leaf1"]["result"]
        assert slices == events["leaf2"]["result"]
        assert all(slices <= events[leaf]["partial"] for leaf in LEAVES), "each goes up, again if it is asked for"
        assert [events[spine]["partial"] for spine in SPINES] == [0, 0]
        assert events["spine1"]["result"] + events["spine2"]["result"] == slices
        assert min(events[spine]["result"] for spine in SPINES) > slices / 4
        # A spine dies, and the links to it.
        job.kill_spine1()
        longest, died = 0.0, time.monotonic()
        while time.monotonic() < died + 2 or ask.roots() != {"spine2": 16}:
            begun = time.monotonic()
            steps.step()
            longest = max(longest, time.monotonic() - begun)
        print(f"the longest step while a spine died took {longest:.2f} s")
        steps.until(lambda: all(sums(host)["by_switch"] for host in hosts))
        before = counts(hosts[0])["summed_bytes"]
        for _ in range(10):
            steps.step()
        assert counts(hosts[0])["summed_bytes"] == before + 10 * 4 * sum(SIZES)
        # It comes back, and nobody has to wait for it.
        fallbacks = [sums(host)["fallbacks"] for host in hosts]
        network.links("spine1", "up")
        back = stack.enter_context(switch(network, "spine1", tmp_path))
        while ask.roots() != {"spine1": 8, "spine2": 8}:
            for _ in range(10):
                steps.step()
        done = result_counts(ask).get("spine1", 0)
        for _ in range(10):
            steps.step()
        assert result_counts(ask)["spine1"] > done
        assert back.poll() is None
        assert [(sums(host)["by_switch"], sums(host)["fallbacks"]) for host in hosts] == [(True, n) for n in fallbacks]
