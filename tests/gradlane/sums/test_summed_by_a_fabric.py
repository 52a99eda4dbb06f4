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

import pytest

from tests.gradlane.sums.test_summed_jobs import SIZES, TRANSPORT, Steps, counts, sums
from tests.gradlane.sums.test_summed_on_a_switch import process, wait_for
from tests.support import members
from tests.support.agents import Agent, running
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
    argv += ("--grpc-server-addr", f"127.0.0.1:{9600 + index}", "--cpu-port", 255)
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


@pytest.mark.alone
def test_a_job_of_two_racks_outlives_a_spine(tmp_path: Path) -> None:
    """Every result is exact; slices go by both spines, by one, and by both again."""
    with Racks(HOSTS, "f") as network, contextlib.ExitStack() as stack:
        switches = {name: stack.enter_context(switch(network, name, tmp_path)) for name in (*LEAVES, *SPINES)}
        file = members.job_file(tmp_path, [f"10.0.{k}.2" for k in range(1, HOSTS + 1)], lines=TRANSPORT)
        inside = network.inside(network.switch)
        controller = (*inside, sys.executable, "-m", "gradlane_controller.cli", "run", "--http", HTTP)
        log = tmp_path / "controller.log"
        files = ("--fabric", fabric(tmp_path), "--job", file)
        stack.enter_context(process(log, *controller, *files))
        wait_for(log, "ready: ", list(switches.values()))
        ask = Asked(network)
        agents = (
            Agent(f"10.0.{k}.2", tmp_path / f"{k}.sock", prefix=network.inside(network.host(k)))
            for k in range(1, HOSTS + 1)
        )
        hosts = stack.enter_context(running(*agents))
        steps = Steps(stack.enter_context(joined(hosts, file, HOSTS)))
        steps.until(lambda: all(sums(host)["by_switch"] and counts(host)["summed_bytes"] for host in hosts))
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
        switches["spine1"].send_signal(signal.SIGKILL)
        network.links("spine1", "down")
        switches["spine1"].wait()
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
