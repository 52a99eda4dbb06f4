# SPDX-License-Identifier: Apache-2.0
"""`gradlane doctor` on hosts in network namespaces, with a router between them, where things really are wrong."""

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import Agent, agents, command, loopback, running
from tests.support.members import job_file
from tests.support.needs import needs, needs_root

pytestmark = [needs_root, needs("ethtool")]
PREFIX = f"ops{os.getpid() % 10000}"
ADDRESSES = {4: ("10.91.1.2", "10.91.2.2"), 6: ("fd91:1::2", "fd91:2::2")}
both_families = pytest.mark.parametrize("fabric", [4, 6], indirect=True)


def sh(text: str, check: bool = True) -> subprocess.CompletedProcess:
    """Runs a command line."""
    return subprocess.run(text.split(), capture_output=True, text=True, check=check, timeout=60)


class Fabric:
    """Two hosts, "a" and "b", on both sides of a router, "r"."""

    def __init__(self, family: int) -> None:
        self.addresses = ADDRESSES[family]
        self.router = [re.sub("2$", "1", address) for address in self.addresses]
        bits, no_wait = (24, "") if family == 4 else (64, "nodad")
        for name in "arb":
            sh(f"ip netns add {PREFIX}{name}")
            # Or nothing is forwarded in the first two seconds, while the links' own addresses are checked for others.
            self.run(name, "sysctl -q net.ipv6.conf.default.accept_dad=0")
            self.run(name, "ip link set lo up")
        for host, own, router in zip("ab", self.addresses, self.router, strict=True):
            sh(f"ip link add eth0 netns {PREFIX}{host} type veth peer name to-{host} netns {PREFIX}r")
            self.run(host, "ip link set eth0 up")
            self.run("r", f"ip link set to-{host} up")
            self.run(host, f"ip address add {own}/{bits} dev eth0 {no_wait}")
            self.run("r", f"ip address add {router}/{bits} dev to-{host} {no_wait}")
            self.run(host, f"ip -{family} route add default via {router}")
        self.forwarding = "net.ipv4.ip_forward" if family == 4 else "net.ipv6.conf.all.forwarding"
        self.run("r", f"sysctl -q {self.forwarding}=1")

    def run(self, name: str, text: str, check: bool = True) -> subprocess.CompletedProcess:
        """Runs a command line in a namespace."""
        return sh(f"ip netns exec {PREFIX}{name} {text}", check)

    @contextlib.contextmanager
    def rewriting(self, dscp: int) -> Iterator[None]:
        """The router gives all packets that DSCP."""
        self.run("r", f"sysctl -q {self.forwarding}=0")
        arguments: list[str] = []
        for host, address in zip("ab", self.addresses, strict=True):
            self.run(host, "ethtool -K eth0 tx off")  # checksums are complete before the program sees them
            (link,) = json.loads(self.run(host, "ip -json link show eth0").stdout)
            arguments += [f"to-{host}", link["address"], address]
        program = [sys.executable, str(Path(__file__).with_name("rewriting_router.py")), str(dscp), *arguments]
        inside = ("ip", "netns", "exec", f"{PREFIX}r")
        with subprocess.Popen([*inside, *program], stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield
            finally:
                process.kill()

    def close(self) -> None:
        """Removes everything."""
        for name in "arb":
            sh(f"ip netns delete {PREFIX}{name}", check=False)


@pytest.fixture
def fabric(request: pytest.FixtureRequest) -> Iterator[Fabric]:
    made = Fabric(getattr(request, "param", 4))
    yield made
    made.close()


@pytest.fixture
def ready_agents(fabric: Fabric, tmp_path: Path) -> Iterator[dict[str, Agent]]:
    """An agent at each host."""
    started = {
        name: Agent(address, tmp_path / f"{name}.sock", prefix=("ip", "netns", "exec", PREFIX + name))
        for name, address in zip("ab", fabric.addresses, strict=True)
    }
    with running(*started.values()):
        yield started


def examine(fabric: Fabric, tmp_path: Path, changes: str = "") -> tuple[int, list[dict]]:
    """Exit code and findings of the doctor at host a."""
    file = job_file(tmp_path, fabric.addresses)
    file.write_text(file.read_text().replace('rate = "1gbit"\n', f'rate = "1gbit"\n{changes}\n'))
    arguments = ("doctor", "--json", "--job", file, "--socket", tmp_path / "a.sock")
    done = command(*arguments, prefix=("ip", "netns", "exec", f"{PREFIX}a"))
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def state_of(findings: list[dict], words: str) -> str:
    """The state of the one finding with these words, and that it says how to fix what is not ok."""
    found = [finding for finding in findings if words in finding["text"]]
    assert len(found) == 1, f"{words!r} in {json.dumps(findings, indent=1)}"
    assert found[0]["state"] == "ok" or found[0]["fix"]
    return found[0]["state"]


@both_families
@pytest.mark.usefixtures("ready_agents")
def test_a_healthy_path(fabric: Fabric, tmp_path: Path) -> None:
    code, findings = examine(fabric, tmp_path)
    assert code == 0, findings
    for words in (
        "runs (pid",
        f"eth0 has {fabric.addresses[0]}",
        "eth0 has 1500 bytes",
        f"route by eth0, next hop {fabric.router[0]}",
        "path MTU 1500",
        "an agent takes control connections",
        "DSCP 56 arrives unchanged",
        "tx-udp-segmentation is on",
    ):
        assert state_of(findings, words) == "ok"


@both_families
@pytest.mark.usefixtures("ready_agents")
def test_what_is_wrong_at_this_host_and_on_the_way(fabric: Fabric, tmp_path: Path) -> None:
    fabric.run("a", "ethtool -K eth0 tx-udp-segmentation off")
    fabric.run("r", "ip link set to-b mtu 1300")
    fabric.run("b", "ip link set eth0 mtu 1300")
    code, findings = examine(fabric, tmp_path, "slice_bytes = 1432")
    assert code == 1
    assert state_of(findings, "eth0: tx-udp-segmentation is off") == "warn"
    needed = 1496 if fabric.addresses == ADDRESSES[4] else 1516
    assert state_of(findings, f"path MTU 1300; slices of 1432 bytes need {needed}") == "fail"
    assert state_of(findings, "a link of the path carries 1300 bytes, this host's interface 1500") == "warn"
    code, findings = examine(fabric, tmp_path)  # slices as large as the path takes
    assert code == 0
    assert state_of(findings, "path MTU 1300") == "ok"


@both_families
@pytest.mark.usefixtures("ready_agents")
def test_jumbo_frames_that_a_job_does_not_use(fabric: Fabric, tmp_path: Path) -> None:
    for name, interface in (("a", "eth0"), ("r", "to-a"), ("r", "to-b"), ("b", "eth0")):
        fabric.run(name, f"ip link set {interface} mtu 9000")
    code, findings = examine(fabric, tmp_path, "slice_bytes = 1432")
    assert code == 0
    assert state_of(findings, "eth0 has 9000 bytes") == "ok"
    most = 8936 if fabric.addresses == ADDRESSES[4] else 8912
    assert state_of(findings, f"slices have 1432 bytes, and may have {most}, at less CPU time") == "warn"
    code, findings = examine(fabric, tmp_path)
    assert state_of(findings, "path MTU 9000") == "ok"
    assert not [finding for finding in findings if "slices have" in finding["text"]]


@pytest.mark.usefixtures("ready_agents")
def test_a_link_that_swallows_large_packets_in_silence(fabric: Fabric, tmp_path: Path) -> None:
    # The sender of the link believes in 1500 bytes, the receiver takes fewer: nobody tells.
    fabric.run("r", "sysctl -q net.ipv4.icmp_ratemask=0")
    fabric.run("b", "ip link set eth0 mtu 1300")
    fabric.run("b", "ethtool -K eth0 gro off")
    done = fabric.run("a", "ping -c 1 -W 1 -M do -s 1472 10.91.2.2", check=False)
    if done.returncode == 0:
        pytest.skip("this kernel's veth takes packets that are longer than its MTU")
    code, findings = examine(fabric, tmp_path)
    assert code == 1
    assert state_of(findings, "packets of 1500 bytes vanish without") == "fail"


def test_no_agent_here_and_none_there(fabric: Fabric, tmp_path: Path) -> None:
    code, findings = examine(fabric, tmp_path)
    assert code == 1
    assert state_of(findings, "no agent listens on") == "fail"
    assert state_of(findings, "no agent runs there (TCP port 47401 is closed)") == "fail"
    fabric.run("a", "ip route delete default")
    code, findings = examine(fabric, tmp_path)
    assert state_of(findings, "no route: ") == "fail"


def test_a_next_hop_that_is_dead_and_an_address_that_is_not_here(fabric: Fabric, tmp_path: Path) -> None:
    fabric.run("r", "ip link set to-a arp off")
    code, findings = examine(fabric, tmp_path)
    assert code == 1
    assert state_of(findings, "the next hop, 10.91.1.1 by eth0, does not answer") == "fail"
    fabric.run("a", "ip address delete 10.91.1.2/24 dev eth0")
    code, findings = examine(fabric, tmp_path)
    assert code == 1
    assert state_of(findings, "no rank has an address of this host") == "fail"


@both_families
@pytest.mark.usefixtures("ready_agents")
def test_a_router_that_changes_dscp(fabric: Fabric, tmp_path: Path) -> None:
    with fabric.rewriting(10):
        code, findings = examine(
            fabric, tmp_path, 'tagging = "host"\n[policy]\nqueue_classes = [{ layers = [0, 65535], class = 6 }]'
        )
    assert code == 0, findings  # it works, but worse than it could
    assert state_of(findings, "DSCP 48 arrives as 10, 56 arrives as 10") == "warn"


def test_two_agents_on_one_machine(tmp_path: Path) -> None:
    with agents(tmp_path, loopback(2)) as hosts:
        for rank, agent in enumerate(hosts):
            file = job_file(tmp_path, loopback(2))
            done = command("doctor", "--json", "--job", file, "--socket", agent.socket)
            findings = json.loads(done.stdout)
            assert done.returncode == 0, findings
            assert state_of(findings, f"lo has {agent.address}") == "ok"
            assert state_of(findings, "path MTU 65535") == "ok"
            assert {finding["check"] for finding in findings if finding["check"].startswith("rank")} == {
                f"rank {1 - rank} (h{1 - rank}, {hosts[1 - rank].address})"
            }
            assert not [finding for finding in findings if "a link of the path" in finding["text"]]


def test_small_socket_buffers(tmp_path: Path) -> None:
    # The limit is the whole machine's, so only this process sees it small: in a mount namespace of its own.
    (tmp_path / "small").write_text("65536\n")
    mount = f"mount --bind {tmp_path}/small /proc/sys/net/core/rmem_max"
    done = command(
        "doctor", "--json", "--address", "127.0.0.1", prefix=("unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "-")
    )
    findings = json.loads(done.stdout)
    assert state_of(findings, "net.core.rmem_max is 65536; the agent asks for 4194304 bytes") == "warn"
    assert state_of(findings, "net.core.wmem_max is ") in ("ok", "warn")
