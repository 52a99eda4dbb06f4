# SPDX-License-Identifier: Apache-2.0
"""What `gradlane doctor` says of a network card: on trees of files as /sys and /proc of hosts with several sockets."""

import errno
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path

import pytest

from gradlane.doctor import ethtool, interface, placement
from gradlane.doctor.card import MOST_BELOW, Card, System, cores_of, text_of
from gradlane.doctor.findings import Finding
from gradlane.doctor.interface import Interface
from tests.support.needs import needs, needs_root

AGENT = 4321
ADDRESS = ip_address("10.0.0.2")


class Host:
    """Two sockets, eth0 at the second one. `interrupts`: where each goes to; IRQ 50 has never come."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.system = System(root)
        self.write("sys/devices/system/cpu/online", "0-15")
        self.write("sys/devices/system/node/node0/cpulist", "0-7")
        self.write("sys/devices/system/node/node1/cpulist", "8-15")
        self.write("sys/devices/system/node/node2/cpulist", "")  # memory alone
        device = root / "sys/devices/pci0000:80/0000:81:00.0"
        for irq in (50, 51, 52):
            self.write(f"{device}/msi_irqs/{irq}", "msix")
        self.write(f"{device}/numa_node", "1")
        (root / "sys/class/net/eth0").mkdir(parents=True)
        (root / "sys/class/net/eth0/device").symlink_to(device)
        self.runs_on("8-9")
        came = "".join(
            f" {irq}: {0 if irq == 50 else irq} {' 0' * 14} 7 PCI-MSIX 1-edge eth0-{irq}\n" for irq in (51, 52)
        )
        heads = "   " + "".join(f"CPU{core} " for core in range(16)) + "\n"
        never = " 50:" + " 0" * 16 + " PCI-MSIX-0000:81:00.0 0-edge eth0-config\n"
        self.write("proc/interrupts", heads + never + came + "NMI: 0 0 Non-maskable interrupts\nERR: 0\n")
        self.write("proc/irq/50/smp_affinity_list", "0")
        self.goes_to(51, "10")
        self.goes_to(52, "11")

    def write(self, name: str, text: str) -> None:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")

    def runs_on(self, cores: str) -> None:
        """The agent's transport may."""
        others = [(AGENT + number, "gradlane", "0-15") for number in range(20)]
        for task, name, its in (*others, (AGENT + 20, "gradlane-io", cores)):
            self.write(f"proc/{AGENT}/task/{task}/comm", name)
            self.write(
                f"proc/{AGENT}/task/{task}/status", f"Name:\t{name}\nCpus_allowed:\tff\nCpus_allowed_list:\t{its}"
            )

    def goes_to(self, irq: int, core: str) -> None:
        self.write(f"proc/irq/{irq}/smp_affinity_list", "0-15")
        self.write(f"proc/irq/{irq}/effective_affinity_list", core)

    def examine(self, name: str = "eth0", pid: int | None = AGENT) -> dict[str, Finding]:
        """By check; of each there is one, and it says how to mend what is not ok."""
        found = list(placement.checks(name, pid, self.system))
        assert all(it.state == "ok" or it.fix for it in found)
        assert len({it.check for it in found}) == len(found)
        return {it.check: it for it in found}


Answers = dict[str, ethtool.Amount]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """What the kernel says of queues and rings; nothing by default."""
    made: Answers = {}

    def answering(what: str) -> Callable[[str], ethtool.Amount]:
        def ask(name: str) -> ethtool.Amount:
            assert name == "eth0"
            if what not in made:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            return made[what]

        return ask

    monkeypatch.setattr(ethtool, "queues", answering("queues"))
    monkeypatch.setattr(ethtool, "ring", answering("ring"))
    return made


@pytest.fixture
def host(tmp_path: Path, answers: Answers) -> Host:
    return Host(tmp_path)


def test_an_agent_near_its_card_and_beside_its_interrupts(host: Host) -> None:
    found = host.examine()
    assert {it.state for it in found.values()} == {"ok"}
    assert found.keys() == {"NUMA", "interrupts"}
    assert found["interrupts"].text == "those of eth0 go to cores 10-11, none of them the agent's (8-9)"


@pytest.mark.parametrize("cores", ["0-15", "7-8", "0"])
def test_an_agent_that_may_run_far_from_its_card(host: Host, cores: str) -> None:
    host.runs_on(cores)
    numa = host.examine()["NUMA"]
    assert numa.state == "warn"
    assert f"NUMA node 1, which has cores 8-15; the agent may run on {cores}, and" in numa.text
    assert "taskset -apc 8-15 4321; " in numa.fix
    assert "CPUAffinity=8-15 " in numa.fix


def test_interrupts_on_the_cores_of_the_agent(host: Host) -> None:
    host.goes_to(52, "9")
    found = host.examine()["interrupts"]
    assert found.state == "warn"
    assert found.text == "52 of eth0 go to a core of the agent (8-9), which they take time from"
    assert "for irq in 52; do echo 10-15 > /proc/irq/$irq/smp_affinity_list; done" in found.fix


def test_interrupts_far_from_the_card(host: Host) -> None:
    host.goes_to(51, "3")
    host.goes_to(52, "2")
    found = host.examine()["interrupts"]
    assert found.state == "warn"
    assert found.text == "51 52 of eth0 go to cores of another NUMA node than eth0's (8-15)"
    assert "for irq in 51 52; do echo 10-15 > " in found.fix


def test_where_the_kernel_does_not_say_which_core_it_has_chosen(host: Host) -> None:
    for irq, cores in ((51, "12-15"), (52, "9,12")):
        host.goes_to(irq, "")
        host.write(f"proc/irq/{irq}/smp_affinity_list", cores)
    assert host.examine()["interrupts"].text.startswith("52 of eth0 go to a core of the agent")
    host.write("proc/irq/52/smp_affinity_list", "3,12")  # it may come near the card
    assert host.examine()["interrupts"].state == "ok"


def test_an_agent_that_has_no_cores_of_its_own_shares_them_with_interrupts(host: Host) -> None:
    host.runs_on("0-15")
    assert host.examine()["interrupts"] == Finding("ok", "interrupts", "those of eth0 go to cores 10-11")
    host.runs_on("8-15")  # all that are near: there is no better place
    host.goes_to(52, "9")
    assert "interrupts" not in host.examine()


@pytest.mark.parametrize("pid", [None, AGENT + 7])
def test_an_agent_that_does_not_run_or_can_not_be_seen(host: Host, pid: int | None) -> None:
    assert host.examine(pid=pid) == {"interrupts": Finding("ok", "interrupts", "those of eth0 go to cores 10-11")}


def test_a_host_with_one_node_or_a_card_of_which_it_is_not_known(host: Host) -> None:
    device = host.root / "sys/class/net/eth0/device"
    for node in ("-1", "2"):
        (device / "numa_node").write_text(f"{node}\n")
        host.runs_on("0-15")
        host.goes_to(52, "3")
        assert host.examine() == {"interrupts": Finding("ok", "interrupts", "those of eth0 go to cores 3,10")}
    (device / "numa_node").write_text("1\n")
    shutil.rmtree(host.root / "sys/devices/system/node/node0")
    assert "NUMA" not in host.examine()


def test_the_card_behind_a_virtio_device_and_those_of_a_bond(host: Host) -> None:
    net = host.root / "sys/class/net"
    pci = (net / "eth0/device").resolve()
    (pci / "virtio2").mkdir()
    for name in ("bond0", "vlan5", "eth1", "veth0"):
        (net / name).mkdir()
    (net / "eth1/device").symlink_to(pci / "virtio2")
    (net / "bond0/lower_eth1").symlink_to(net / "eth1")
    (net / "vlan5/lower_bond0").symlink_to(net / "bond0")
    (net / "vlan5/lower_eth0").symlink_to(net / "eth0")
    (net / "eth1/statistics").mkdir()
    (net / "eth1/statistics/rx_missed_errors").write_text("7\n")
    irqs = {51: frozenset({10}), 52: frozenset({11})}
    assert host.system.cards("vlan5") == [Card("eth0", 1, irqs, 0), Card("eth1", 1, irqs, 7)]
    (net / "eth0/lower_eth1").symlink_to(net / "eth1")  # a virtual function does the work of a card of the hypervisor's
    assert host.system.cards("vlan5") == [Card("eth1", 1, irqs, 7)]
    assert host.system.cards("veth0") == []
    assert list(placement.checks("veth0", AGENT, host.system)) == []


def test_a_loop_of_interfaces_and_very_many_end(host: Host) -> None:
    net = host.root / "sys/class/net"
    for number in range(3 * MOST_BELOW):
        (net / f"a{number}").mkdir()
        (net / f"a{number}/lower_a{(number + 1) % (3 * MOST_BELOW)}").touch()
        (net / f"a{number}/lower_eth0").touch()
    assert [card.name for card in host.system.cards("a0")] == ["eth0"]


def test_a_host_that_shows_nothing(tmp_path: Path) -> None:
    assert System(tmp_path).cards("eth0") == []
    assert list(placement.checks("eth0", AGENT, System(tmp_path))) == []


@pytest.mark.parametrize(
    ("now", "most", "fix"),
    [(1, 63, "-L eth0 combined 8: "), (7, 8, "-L eth0 combined 8: "), (8, 63, ""), (2, 2, ""), (1, 4, "combined 4: ")],
)
def test_fewer_queues_than_cores(host: Host, answers: Answers, now: int, most: int, fix: str) -> None:
    answers["queues"] = ethtool.Amount("combined", now, most)
    found = host.examine()["queues"]
    assert found.text == f"eth0 receives by {now}, and could by {most}; 8 cores are near it"
    assert (found.state == "warn") == bool(fix)
    assert fix in found.fix


@pytest.mark.parametrize(
    ("now", "most", "missed", "state"),
    [(256, 4096, 0, "warn"), (1024, 4096, 0, "ok"), (256, 256, 0, "ok"), (1024, 4096, 3, "warn"), (512, 512, 3, "ok")],
)
def test_rings_that_are_small_or_have_been_full(
    host: Host, answers: Answers, now: int, most: int, missed: int, state: str
) -> None:
    answers["ring"] = ethtool.Amount("rx", now, most)
    host.write("sys/class/net/eth0/statistics/rx_missed_errors", str(missed))
    found = host.examine()["rings"]
    assert found.state == state
    assert ("3 have been lost" in found.text) == bool(missed)
    assert found.fix == f"ethtool -G eth0 rx {most}" or state == "ok"


@pytest.mark.parametrize(
    ("mtu", "most", "card", "state"),
    [
        (1500, 9216, True, "warn"),
        (1500, 65535, False, "ok"),
        (1500, 1500, True, "ok"),
        (4000, 9000, True, "warn"),
        (9000, 9216, True, "ok"),
        (1400, 1500, False, "warn"),
    ],
)
@pytest.mark.usefixtures("answers")
def test_jumbo_frames_that_a_card_can_have(host: Host, mtu: int, most: int, card: bool, state: str) -> None:
    link = Interface("eth0" if card else "veth0", mtu, True, most)
    [found] = [it for it in interface.checks(ADDRESS, link, None, host.system) if it.check == "MTU"]
    assert found.state == state
    assert f"ip link set {link.name} mtu {9000 if mtu >= 1500 else 1500}" in found.fix or state == "ok"


@pytest.mark.parametrize("text", ["", "0", "0-3", "0-3,8", "0,2,4-5,15"])
def test_lists_of_cores(text: str) -> None:
    assert text_of(cores_of(text + "\n")) == text


def answer_of(values: Mapping[int, int]) -> Callable[[str, bytes], bytes]:
    """Of nine numbers of 32 bits, of which some are not 0."""
    return lambda _, asked: asked[:4] + struct.pack("=8I", *(values.get(place, 0) for place in range(1, 9)))


def test_what_the_kernel_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # struct ethtool_channels and ethtool_ringparam of linux/ethtool.h.
    for values, amount in (
        ({1: 64, 2: 64, 4: 32, 8: 12}, ethtool.Amount("combined", 12, 32)),
        ({4: 32, 5: 3, 6: 3, 8: 1}, ethtool.Amount("combined", 4, 32)),
        ({1: 16, 2: 8, 5: 4, 6: 2}, ethtool.Amount("rx", 4, 16)),
    ):
        monkeypatch.setattr(ethtool, "ask", answer_of(values))
        assert ethtool.queues("eth0") == amount
    monkeypatch.setattr(ethtool, "ask", answer_of({1: 4096, 2: 1, 3: 2, 4: 8192, 5: 512, 6: 3, 7: 4, 8: 1024}))
    assert ethtool.ring("eth0") == ethtool.Amount("rx", 512, 4096)


@pytest.fixture
def pair() -> Iterator[str]:
    name = f"dr{os.getpid()}"
    made = ["ip", "link", "add", name, "numrxqueues", "4", "type", "veth", "peer", "name", f"{name}p"]
    subprocess.run(made, check=True, timeout=10)
    yield name
    subprocess.run(["ip", "link", "delete", name], check=True, timeout=10)


@needs_root
@needs("ethtool")
def test_a_real_interface_has_the_queues_that_ethtool_says(pair: str) -> None:
    subprocess.run(["ethtool", "-L", pair, "rx", "3"], check=False, timeout=10)
    shown = subprocess.run(["ethtool", "-l", pair], capture_output=True, text=True, check=True, timeout=10).stdout
    most, now = (int(number) for number in re.findall(r"^RX:\s+([0-9]+)", shown, re.MULTILINE))
    assert ethtool.queues(pair) == ethtool.Amount("rx", now, most)
    assert most == 4
    with pytest.raises(OSError, match="not supported"):
        ethtool.ring(pair)


@needs("ethtool")
def test_real_rings_are_those_that_ethtool_says() -> None:
    for folder in Path("/sys/class/net").iterdir():
        done = subprocess.run(["ethtool", "-g", folder.name], capture_output=True, text=True, check=False, timeout=10)
        sizes = re.findall(r"^RX:\s+([0-9]+)", done.stdout, re.MULTILINE)
        if done.returncode == 0 and len(sizes) == 2:
            assert ethtool.ring(folder.name) == ethtool.Amount("rx", int(sizes[1]), int(sizes[0]))
