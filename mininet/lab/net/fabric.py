# SPDX-License-Identifier: Apache-2.0
"""The fabric: hosts in network namespaces, P4 switches, veth links. Built with Mininet's Python API.

Every host is routed: it has a /24 of its own, and its gateway is the switch. A link has the same rate in both
directions: where it leaves a switch, the switch's port enforces it, with its buffer; from a host a token bucket does,
as its network card would.
"""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from mininet.link import Link
from mininet.node import Host

from lab.model.errors import FabricError
from lab.model.plan import DSCP_CLASSES, FabricPlan, HostPlan, SwitchPlan
from lab.model.preconditions import RUN_DIRECTORY
from lab.net import interfaces
from lab.net.forks import END_WITH_PARENT
from lab.net.interfaces import Interface, Shape
from lab.net.switch_nodes import Bmv2Switch, GradlaneSwitch, P4Switch

CPU_PORT = 255  # of p4src/v1model/arch.p4
_HOST_QUEUE = 1_000_000  # bytes that wait in a host for its link

# BMv2 forwards frames as they are: no checksum left to hardware, no segment above the MTU. Hosts of gradlane-switch,
# which would cut them, do the same. Cross traffic is not worth a checksum, and a kernel before 6.11 cuts one large UDP
# send into datagrams only without one.
_HOST_OFFLOADS = {"tx": False, "sg": False, "tso": False, "gso": False, "gro": True}
_TRAFFIC_OFFLOADS = {"tx": True, "sg": False, "tso": False, "gso": False, "tx-udp-segmentation": False}


class TiedHost(Host):
    """A Mininet host whose shell, and with it the namespace, ends with the runner, however that ends."""

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        return super()._popen([*END_WITH_PARENT, *cmd], **params)


class Fabric:
    """A running fabric. Use as a context manager; leaving it removes every namespace and interface.

    The switch nodes are placed, and their ports set up, but the switch processes are started by whoever watches them.
    `neighbours`: hosts know their gateway's Ethernet address from the start instead of asking for it. `seed` is that of
    the switches' impairments. Raises FabricError.
    """

    def __init__(self, plan: FabricPlan, *, seed: int = 1, neighbours: bool = True) -> None:
        self.plan = plan
        self.hosts: dict[str, Any] = {}
        self.switches: dict[str, P4Switch] = {}
        self.links: list[Any] = []
        self._seed = seed
        self._neighbours = neighbours
        self._janitor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Fabric":
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Removes what was built; safe to call twice."""
        while self.links:
            # Not by the nodes' own shells, which a stop may have interrupted in the middle of a command.
            end = self.links.pop().intf2.name
            subprocess.run(["ip", "link", "delete", "dev", end], stderr=subprocess.DEVNULL, check=False)
        for node in [*self.hosts.values(), *self.switches.values()]:
            node.terminate()
        self.hosts.clear()
        self.switches.clear()
        if self._janitor is not None:
            self._janitor.communicate(b"done\n")
            self._janitor = None

    def inside(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on that host."""
        return ["mnexec", "-a", str(self.hosts[host].pid), *argv]

    def set_links(self, switch: str, up: bool) -> None:
        """Takes that switch's ends of its links to other switches up or down. Raises FabricError.

        The other ends lose their carrier, as when a switch dies, and no more: BMv2 stops to read all of its ports while
        one of them is administratively down (github.com/p4lang/behavioral-model/issues/1215).
        """
        for end in self.plan.link_ends(switch):
            argv = ["ip", "link", "set", "dev", end.interface, "up" if up else "down"]
            done = subprocess.run(argv, capture_output=True, text=True, check=False)
            if done.returncode:
                raise FabricError(f"link {end} can't be set {argv[-1]}: {done.stderr.strip()}")

    def bytes_sent(self) -> dict[str, int]:
        """By every end of every link between switches, so far. Raises FabricError."""
        argv = ["ip", "-json", "-statistics", "link", "show"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise FabricError(f"the links' counters can't be read: {done.stderr.strip()}")
        counts = {link["ifname"]: link["stats64"]["tx"]["bytes"] for link in json.loads(done.stdout)}
        return {str(end): counts[end.interface] for link in self.plan.links for end in link}

    def _build(self) -> None:
        self._janitor = _start_janitor(self.plan.port_interfaces)
        for switch in self.plan.switches:
            self.switches[switch.name] = self._switch(switch)
        for host in self.plan.hosts:
            node = self.hosts[host.name] = TiedHost(host.name)
            switch = self.switches[host.switch]
            self.links.append(Link(node, switch, port1=0, port2=host.port, addr1=host.mac, addr2=host.port_mac))
            self._set_up_host(host)
            interface: Any = node.defaultIntf()
            interface.ip, interface.prefixLen = host.address, "24"  # what Mininet's own commands ask for
        for one, other in self.plan.links:
            ends = [self.switches[one.switch], self.switches[other.switch]]
            self.links.append(Link(*ends, port1=one.port, port2=other.port, addr1=one.mac, addr2=other.mac))
        for node in self.switches.values():
            node.set_up_ports()

    def _switch(self, switch: SwitchPlan) -> P4Switch:
        options: dict[str, Any] = {
            "device_id": switch.index,
            "grpc": switch.address,
            "settings": self.plan.port_settings(switch.name),
            "inNamespace": False,
        }
        if switch.target == "bmv2":
            ipc = RUN_DIRECTORY / f"{switch.name}.ipc"
            return Bmv2Switch(switch.name, notifications=ipc, dscp_classes=DSCP_CLASSES, cpu_port=CPU_PORT, **options)
        # Hosts and switches share the machine's cores: rounds of forwarding are few, at the price of latency.
        flags = ("--cpu-port", str(CPU_PORT), "--coalesce", "200us", "--seed", str(self._seed + switch.index - 1))
        return GradlaneSwitch(switch.name, admin=RUN_DIRECTORY / f"{switch.name}.sock", flags=flags, **options)

    def _set_up_host(self, host: HostPlan) -> None:
        traffic = host.role == "traffic"
        shape = Shape()
        if not traffic:  # cross traffic comes from a whole network behind that port: no single link's rate
            shape += interfaces.token_bucket(self.plan.rate, _HOST_QUEUE)
        impairment = self.plan.impairments.get(host.name)
        if impairment is not None and not self.plan.loses_by_switch(host):
            shape += interfaces.lossy(impairment.loss)
        offloads = _TRAFFIC_OFFLOADS if traffic else _HOST_OFFLOADS
        name = host.interface
        after = [f"ip route replace default via {host.gateway} dev {name}"]
        if self._neighbours:
            after.append(f"ip neighbour replace {host.gateway} lladdr {host.gateway_mac} dev {name} nud permanent")
        Interface(name, offloads, shape, tuple(self.inside(host.name, []))).set_up(
            before=["ip link set dev lo up", f"ip address replace {host.address}/24 dev {name}"], after=after
        )


def _start_janitor(names: Sequence[str]) -> "subprocess.Popen[bytes]":
    """A process that removes the interfaces if the runner dies without a word.

    Then every other process dies too, but the kernel keeps a namespace, and with it the links into it, until the last
    TCP connection that was open in it has timed out.
    """
    script = 'read -r word || for interface; do ip link delete dev "$interface"; done'
    command = ["sh", "-c", script, "janitor", *names]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)
