# SPDX-License-Identifier: Apache-2.0
"""`gradlane doctor` on hosts in network namespaces, with a router between them, where things really are wrong."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_processes import AgentProcess, command, job_file

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="takes root: network namespaces"),
    pytest.mark.skipif(shutil.which("ethtool") is None, reason="ethtool is not installed"),
]
PREFIX = f"ops{os.getpid() % 10000}"
ADDRESSES = ("10.91.1.2", "10.91.2.2")


def sh(text: str, check: bool = True) -> subprocess.CompletedProcess:
    """Runs a command line."""
    return subprocess.run(text.split(), capture_output=True, text=True, check=check, timeout=20)


class Fabric:
    """Two hosts, "a" and "b", on both sides of a router, "r"."""

    def __init__(self) -> None:
        for name in "arb":
            sh(f"ip netns add {PREFIX}{name}")
            self.run(name, "ip link set lo up")
        for subnet, host in ((1, "a"), (2, "b")):
            sh(f"ip link add eth0 netns {PREFIX}{host} type veth peer name to-{host} netns {PREFIX}r")
            self.run(host, "ip link set eth0 up")
            self.run("r", f"ip link set to-{host} up")
            self.run(host, f"ip address add 10.91.{subnet}.2/24 dev eth0")
            self.run("r", f"ip address add 10.91.{subnet}.1/24 dev to-{host}")
            self.run(host, f"ip route add default via 10.91.{subnet}.1")
        self.run("r", "sysctl -q net.ipv4.ip_forward=1")

    def run(self, name: str, text: str, check: bool = True) -> subprocess.CompletedProcess:
        """Runs a command line in a namespace."""
        return sh(f"ip netns exec {PREFIX}{name} {text}", check)

    def close(self) -> None:
        """Removes everything."""
        for name in "arb":
            sh(f"ip netns delete {PREFIX}{name}", check=False)


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    made = Fabric()
    yield made
    made.close()


@pytest.fixture
def agents(fabric: Fabric, tmp_path: Path) -> Iterator[dict[str, AgentProcess]]:
    """An agent at each host."""
    started = {
        name: AgentProcess(
            "--address", address, "--socket", tmp_path / f"{name}.sock", prefix=("ip", "netns", "exec", PREFIX + name)
        )
        for name, address in zip("ab", ADDRESSES, strict=True)
    }
    try:
        for agent in started.values():
            agent.wait_for("ready")
        yield started
    finally:
        for agent in started.values():
            agent.end()


def examine(tmp_path: Path, changes: str = "") -> tuple[int, list[dict]]:
    """Exit code and findings of the doctor at host a."""
    file = job_file(tmp_path, 2, addresses=ADDRESSES)
    file.write_text(file.read_text().replace('rate = "1gbit"\n', f'rate = "1gbit"\n{changes}\n'))
    arguments = ("doctor", "--json", "--job", file, "--socket", tmp_path / "a.sock")
    done = command(*arguments, prefix=("ip", "netns", "exec", f"{PREFIX}a"))
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


def state_of(findings: list[dict], words: str) -> str:
    """The state of the one finding with these words, and that it says how to mend what is not ok."""
    found = [finding for finding in findings if words in finding["text"]]
    assert len(found) == 1, f"{words!r} in {json.dumps(findings, indent=1)}"
    assert found[0]["state"] == "ok" or found[0]["mend"]
    return found[0]["state"]


@pytest.mark.usefixtures("agents")
def test_a_healthy_path(tmp_path: Path) -> None:
    code, findings = examine(tmp_path)
    assert code == 0, findings
    for words in ("runs (pid", "eth0 has 10.91.1.2", "eth0 has 1500 bytes", "route by eth0, next hop 10.91.1.1"):
        assert state_of(findings, words) == "ok"
    for words in (
        "path MTU 1500",
        "an agent takes control connections",
        "DSCP 56 is kept",
        "tx-udp-segmentation is on",
    ):
        assert state_of(findings, words) == "ok"


@pytest.mark.usefixtures("agents")
def test_what_is_wrong_at_this_host_and_on_the_way(fabric: Fabric, tmp_path: Path) -> None:
    fabric.run("a", "ethtool -K eth0 tx-udp-segmentation off")
    fabric.run("r", "ip link set to-b mtu 1300")
    fabric.run("b", "ip link set eth0 mtu 1300")
    code, findings = examine(tmp_path, "slice_bytes = 1432")
    assert code == 1
    assert state_of(findings, "eth0: tx-udp-segmentation is off") == "warn"
    assert state_of(findings, "path MTU 1300; slices of 1432 bytes need 1496") == "fail"
    assert state_of(findings, "a link on the way takes 1300 bytes, this host's interface 1500") == "warn"
    code, findings = examine(tmp_path)  # slices as large as the path takes
    assert code == 0
    assert state_of(findings, "path MTU 1300") == "ok"


@pytest.mark.usefixtures("agents")
def test_a_link_that_swallows_large_packets_in_silence(fabric: Fabric, tmp_path: Path) -> None:
    # The sender of the link believes in 1500 bytes, the receiver takes fewer: nobody tells.
    fabric.run("r", "sysctl -q net.ipv4.icmp_ratemask=0")
    fabric.run("b", "ip link set eth0 mtu 1300")
    fabric.run("b", "ethtool -K eth0 gro off")
    done = fabric.run("a", "ping -c 1 -W 1 -M do -s 1472 10.91.2.2", check=False)
    if done.returncode == 0:
        pytest.skip("this kernel's veth takes packets that are longer than its MTU")
    code, findings = examine(tmp_path)
    assert code == 1
    assert state_of(findings, "packets of 1500 bytes vanish on the way") == "fail"


def test_no_agent_here_and_none_there(fabric: Fabric, tmp_path: Path) -> None:
    code, findings = examine(tmp_path)
    assert code == 1
    assert state_of(findings, "no agent listens on") == "fail"
    assert state_of(findings, "no agent runs there (TCP port 47401 is closed)") == "fail"
    fabric.run("a", "ip route delete default")
    code, findings = examine(tmp_path)
    assert state_of(findings, "no route: ") == "fail"


def test_a_next_hop_that_is_dead_and_an_address_that_is_not_here(fabric: Fabric, tmp_path: Path) -> None:
    fabric.run("r", "ip link set to-a arp off")
    code, findings = examine(tmp_path)
    assert code == 1
    assert state_of(findings, "the next hop, 10.91.1.1 by eth0, does not answer") == "fail"
    fabric.run("a", "ip address delete 10.91.1.2/24 dev eth0")
    code, findings = examine(tmp_path)
    assert code == 1
    assert state_of(findings, "no rank has an address of this host") == "fail"


@pytest.mark.usefixtures("agents")
def test_a_router_that_wipes_dscp(fabric: Fabric, tmp_path: Path) -> None:
    rule = "nft add rule ip t c ip dscp set cs0"
    for text in ("nft add table ip t", "nft add chain ip t c {;type;filter;hook;forward;priority;0;}"):
        argv = ["ip", "netns", "exec", f"{PREFIX}r", *text.replace(";", " ; ").replace("{ ;", "{").split()]
        if shutil.which("nft") is None or subprocess.run(argv, capture_output=True, check=False).returncode:
            pytest.skip("takes nft, and a kernel with nf_tables")
    fabric.run("r", rule)
    _, findings = examine(tmp_path)
    assert state_of(findings, "DSCP 56 arrives as 0") == "warn"


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
