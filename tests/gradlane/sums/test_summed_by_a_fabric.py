# SPDX-License-Identifier: Apache-2.0
"""A job of two racks whose gradients leaves and spines of gradlane-switch sum, and a spine that dies, or is busy. It
needs root."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.gradlane.sums.test_summed_jobs import SIZES, TRANSPORT, Steps, counts, sums
from tests.gradlane.sums.test_summed_on_a_switch import process, wait_for
from tests.support import members, zygote
from tests.support.agents import PATIENCE, Agent, running, until
from tests.support.communicators import joined
from tests.support.effort import thorough
from tests.support.namespaces import Network, ip, socket_in
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("ethtool")]

HOSTS = 4  # half of them at each leaf
UP = 100  # and the spine's number: the port of a leaf to it
LEAVES, SPINES = ("leaf1", "leaf2"), ("spine1", "spine2")
HTTP = "127.0.0.1:9560"
DSCP = 46  # of other traffic, in the gradients' class
LINKS = [(leaf, spine) for leaf in (1, 2) for spine in (1, 2)]


class Racks(Network):
    """Two leaves, of half of the hosts each, two spines; all switches are in one namespace, and each leaf has a link to
    each spine."""

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


def leaf_of(host: int, hosts: int) -> int:
    """Of host 1 and on."""
    return 1 + 2 * (host - 1) // hosts


def fabric(folder: Path, link: str = "1gbit", hosts: int = HOSTS) -> Path:
    """Host k - 1 of the job is host k of the network. `link`: the rate that links between switches are said to have."""
    text = "".join(
        f'[[switch]]\nname = "{name}"\naddress = "127.0.0.1:{9600 + n}"\naggregation = true\n'
        for n, name in enumerate((*LEAVES, *SPINES))
    )
    size = 'rate = "1gbit"\nbuffer = "256kB"\n'
    for k in range(1, hosts + 1):
        text += (
            f'[[port]]\nswitch = "leaf{leaf_of(k, hosts)}"\nnumber = {k}\nhost = "h{k - 1}"\n'
            f'mac = "02:00:00:00:00:ff"\nhost_mac = "02:00:00:00:00:{k:02x}"\n'
            f'address = "10.0.{k}.2"\nprefix = "10.0.{k}.0/24"\ngateway = "10.0.{k}.1"\n{size}'
        )
    for leaf, spine in LINKS:
        text += f'[[link]]\nends = ["leaf{leaf}:{UP + spine}", "spine{spine}:{leaf}"]\n{size.replace("1gbit", link)}'
    text += f"[[dscp]]\ndscp = {DSCP}\nqueue_class = 5\n"
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
        ports = {k: f"s{k}" for k in range(1, network.hosts + 1) if leaf_of(k, network.hosts) == number}
        ports |= {UP + n: f"l{number}s{n}" for n in (1, 2)}
    else:
        ports = {leaf: f"s{number}l{leaf}" for leaf in (1, 2)}
    index = (*LEAVES, *SPINES).index(name)
    words = [word for k, interface in ports.items() for word in ("-i", f"{k}@{interface},rate=1gbit,buffer=256kB")]
    argv = (*network.inside(network.switch), sys.executable, "-m", "gradlane_switch", "--device-id", index + 1)
    argv += ("--grpc-server-addr", f"127.0.0.1:{9600 + index}", "--cpu-port", 255, "--admin", folder / f"{name}.admin")
    with process(folder / f"{name}.log", *argv, *words) as made:
        yield made


class Asked:
    """The answers of the controller of that fabric file."""

    def __init__(self, network: Racks, file: Path) -> None:
        self._command = [*network.inside(network.switch), sys.executable, "-m", "gradlane_controller.cli"]
        self._access = ["--json", "--http", HTTP, "--token-file", str(file.with_suffix(".db.token"))]

    def __call__(self, what: str) -> Any:
        return json.loads(zygote.run([*self._command, what, *self._access], PATIENCE, check=True).stdout)

    def roots(self) -> dict[str, int]:
        return self("status")["jobs"][0]["sums"]["roots"]

    def up_to_date(self) -> bool:
        """Whether all switches that it reaches hold what it plans."""
        return all(it["up_to_date"] for it in self("status")["switches"] if it["ready"])


@dataclass
class Job:
    """A running one, which switches sum. `stack`: of what ends with it."""

    network: Racks
    switches: dict[str, "subprocess.Popen[bytes]"]
    ask: Asked
    hosts: list[Agent]
    steps: Steps
    stack: contextlib.ExitStack


@contextlib.contextmanager
def running_job(folder: Path, file: Path, count: int = HOSTS) -> Iterator[Job]:
    """Of all hosts, in the fabric of that file."""
    with Racks(count, "f") as network, contextlib.ExitStack() as stack:
        switches = {name: stack.enter_context(switch(network, name, folder)) for name in (*LEAVES, *SPINES)}
        job = members.job_file(folder, [f"10.0.{k}.2" for k in range(1, count + 1)], lines=TRANSPORT)
        controller = (*network.inside(network.switch), sys.executable, "-m", "gradlane_controller.cli", "run")
        log = folder / "controller.log"
        stack.enter_context(process(log, *controller, "--http", HTTP, "--fabric", file, "--job", job))
        wait_for(log, "ready: ", list(switches.values()))
        agents = (
            Agent(f"10.0.{k}.2", folder / f"{k}.sock", prefix=network.inside(network.host(k)))
            for k in range(1, count + 1)
        )
        hosts = stack.enter_context(running(*agents))
        steps = Steps(stack.enter_context(joined(hosts, job, count)))
        steps.until(lambda: all(sums(host)["by_switch"] and counts(host)["summed_bytes"] for host in hosts))
        yield Job(network, switches, Asked(network, file), hosts, steps, stack)


@contextlib.contextmanager
def traffic(network: Racks, rate: float) -> Iterator[None]:
    """One flow from a rack to the other, of so many bit/s in the mean, however late this thread comes."""
    stop = threading.Event()

    def send() -> None:
        begun, sent = time.monotonic(), 0
        with contextlib.closing(socket_in(network.host(1), socket.AF_INET, socket.SOCK_DGRAM)) as it:
            it.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, DSCP << 2)
            while not stop.wait(0.01):
                while 8 * sent < rate * (time.monotonic() - begun):
                    it.sendto(bytes(1400), ("10.0.3.2", 9))
                    sent += 1442

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        stop.set()
        sender.join()


def kill_spine1(job: Job) -> None:
    """And the links to it go down."""
    job.switches["spine1"].send_signal(signal.SIGKILL)
    job.network.links("spine1", "down")
    job.switches["spine1"].wait()


def test_what_one_rack_has_of_a_spine_that_dies_the_other_has_from_its_leaf(tmp_path: Path) -> None:
    """Hosts need not sum. No clock runs while slices move to the other spine, as all agents are stopped."""
    with running_job(tmp_path, fabric(tmp_path)) as job:
        set_loss = (
            *job.network.inside(job.network.switch),
            sys.executable,
            "-m",
            "gradlane_switch",
            "port",
            "set",
            "2",
        )
        zygote.run([*set_loss, "loss=1", "--admin", str(tmp_path / "spine1.admin")], PATIENCE, check=True)
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
        kill_spine1(job)
        until(lambda: job.ask.roots() == {"spine2": 16})
        until(job.ask.up_to_date)
        for host in job.hosts:
            host.kill(signal.SIGCONT)
        for it in pending:
            np.testing.assert_array_equal(it.wait(PATIENCE), sum(values))
        for _ in range(5):
            job.steps.step()
        assert all(sums(host)["by_switch"] for host in job.hosts)
        assert [sums(host)["fallbacks"] for host in job.hosts] == fallbacks
        assert [counts(host)["sum_reruns"] for host in job.hosts] == reruns


def test_a_job_of_two_racks_outlives_a_spine(tmp_path: Path) -> None:
    """Every result is exact; slices go by both spines, by one, and by both again."""
    with running_job(tmp_path, fabric(tmp_path)) as job:
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
        kill_spine1(job)
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
        back = job.stack.enter_context(switch(network, "spine1", tmp_path))
        while ask.roots() != {"spine1": 8, "spine2": 8}:
            for _ in range(10):
                steps.step()
        done = result_counts(ask).get("spine1", 0)
        for _ in range(10):
            steps.step()
        assert result_counts(ask)["spine1"] > done
        assert back.poll() is None
        assert [(sums(host)["by_switch"], sums(host)["fallbacks"]) for host in hosts] == [(True, n) for n in fallbacks]


def in_doubt(job: Job) -> list[tuple[int, int]]:
    """Of each host: how often it has halted, and how many sums it has refused."""
    found = [host.status()["jobs"]["trial"] for host in job.hosts]
    return [(it["sums"]["halts"], it["counts"]["sums_refused"]) for it in found]


def assert_none_refused_but_in_halts(before: list[tuple[int, int]], after: list[tuple[int, int]]) -> None:
    """Only sums that come while all compare how far they are, or before all go on by hosts, are no use any more."""
    for (halts, refused), (halts_since, refused_since) in zip(before, after, strict=True):
        assert refused_since == refused or halts_since > halts


def test_more_workers_than_bits(tmp_path: Path) -> None:
    """Every result is exact, and the switches go on summing where a spine dies."""
    count = 34
    with running_job(tmp_path, fabric(tmp_path, hosts=count), count) as job:
        doubts, before = in_doubt(job), result_counts(job.ask)
        assert all(halts or not refused for halts, refused in doubts)
        for _ in range(5):
            job.steps.step()
        made = {name: number - before[name] for name, number in result_counts(job.ask).items()}
        assert made["leaf1"] == made["leaf2"] == made["spine1"] + made["spine2"] > 0
        assert_none_refused_but_in_halts(doubts, in_doubt(job))
        kill_spine1(job)
        job.steps.until(lambda: job.ask.roots() == {"spine2": 16})
        job.steps.until(lambda: all(sums(host)["by_switch"] for host in job.hosts))
        doubts = in_doubt(job)
        for _ in range(5):
            job.steps.step()
        assert_none_refused_but_in_halts(doubts, in_doubt(job))


def test_sums_leave_a_busy_spine_and_come_back(tmp_path: Path) -> None:
    """Every result is exact, and none is left to hosts."""
    rate = 8e6
    with running_job(tmp_path, fabric(tmp_path, "8mbit")) as job:
        assert job.ask.roots() == {"spine1": 8, "spine2": 8}
        fallbacks = [sums(host)["fallbacks"] for host in job.hosts]
        with traffic(job.network, 0.6 * rate):
            begun = time.monotonic()
            job.steps.until(lambda: min(job.ask.roots().values()) <= 6)
            print(f"the first buckets have left after {time.monotonic() - begun:.1f} s")
            job.steps.until(lambda: min(job.ask.roots().values()) <= 5)
            roots = job.ask.roots()
            busy, idle = sorted(roots, key=roots.__getitem__)
            loads = {
                end: load for it in job.ask("links")["links"] for end, load in zip(it["ends"], it["load"], strict=True)
            }
            sent = {spine: loads[f"leaf1:{UP + n}"] for n, spine in enumerate(SPINES, 1)}
            assert sent[busy] > rate / 3
            assert sent[idle] < rate / 10, "sums themselves are no load"
            before = result_counts(job.ask)
            for _ in range(20):
                job.steps.step()
            made = {spine: result_counts(job.ask)[spine] - before[spine] for spine in SPINES}
            assert 0 < made[busy] < 0.4 * sum(made.values())
        # The last one comes after a minute, as its gain is slight.
        back = 7 if thorough() else 6
        job.steps.until(lambda: min(job.ask.roots().values()) >= back)
        assert [(sums(host)["by_switch"], sums(host)["fallbacks"]) for host in job.hosts] == [
            (True, n) for n in fallbacks
        ]
