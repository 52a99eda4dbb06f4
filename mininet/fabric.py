# SPDX-License-Identifier: Apache-2.0
"""The fabric: hosts in network namespaces, one P4 switch, veth links. Built with Mininet's Python API.

Every host is routed: it has a /24 of its own, and its gateway is the switch, as a permanent neighbour, so the fabric
needs neither ARP nor broadcast. A link has the same rate in both directions: towards the host the switch enforces it
(its port has the rate and the buffer), from the host a token bucket does, as its network card would.
"""

import subprocess
from collections.abc import Sequence
from typing import Any

from mininet.link import Link
from mininet.node import Host

from errors import FabricError
from gradlane_node import TiedSwitch
from plan import SWITCH, FabricPlan, HostPlan
from processes import END_WITH_PARENT


class _Host(Host):
    """A Mininet host whose shell, and with it the namespace, ends with the runner, however that ends."""

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        return super()._popen([*END_WITH_PARENT, *cmd], **params)


class Fabric:
    """A running fabric. Use as a context manager; leaving it removes every namespace and interface.

    `shape_ports`: also limit the switch's egress with a token bucket and a byte FIFO, for a switch without rates.
    Raises FabricError.
    """

    def __init__(self, plan: FabricPlan, shape_ports: bool) -> None:
        self.plan = plan
        self._shape_ports = shape_ports
        self._switch: Any = None
        self._hosts: dict[str, Any] = {}
        self._links: list[Any] = []
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
        while self._links:
            self._links.pop().stop()
        for node in [*self._hosts.values(), self._switch]:
            if node is not None:
                node.terminate()
        self._hosts.clear()
        self._switch = None
        if self._janitor is not None:
            self._janitor.communicate(b"done\n")
            self._janitor = None

    def inside(self, host: str, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on that host."""
        return ["mnexec", "-a", str(self._hosts[host].pid), *argv]

    def _build(self) -> None:
        self._janitor = _start_janitor([host.port_interface for host in self.plan.hosts])
        # A place for the switch's ends of the links; the switch process, of either kind, is started apart and watched.
        self._switch = TiedSwitch(SWITCH, inNamespace=False)
        for host in self.plan.hosts:
            node = self._hosts[host.name] = _Host(host.name)
            self._links.append(
                Link(node, self._switch, port1=0, port2=host.number, addr1=host.mac, addr2=host.port_mac)
            )
            _run(self.inside(host.name, ["sh", "-ec", _host_script(host, self.plan)]), f"host {host.name}")
            _run(["sh", "-ec", _port_script(host, self.plan, self._shape_ports)], f"switch port {host.number}")


def _start_janitor(interfaces: Sequence[str]) -> "subprocess.Popen[bytes]":
    """A process that removes the interfaces if the runner dies without a word.

    Then every other process dies too, but the kernel keeps a namespace, and with it the links into it, until the last
    TCP connection that was open in it has timed out.
    """
    script = 'read -r word || for interface; do ip link delete dev "$interface"; done'
    command = ["sh", "-c", script, "janitor", *interfaces]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True)


def _run(argv: Sequence[str], what: str) -> None:
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise FabricError(f"{what} can't be set up: {done.stdout.strip() or f'exit status {done.returncode}'}")


def token_bucket(interface: str, rate: int, limit: int) -> str:
    """The tc command for a rate limit of `rate` bit/s with a FIFO of `limit` bytes.

    The bucket holds half a millisecond, and at least two frames: deep enough for a late timer, shallow for a buffer.
    """
    burst = max(2 * 1514, rate // 8 // 2000)
    return f"tc qdisc add dev {interface} root tbf rate {rate}bit burst {burst}b limit {limit + burst}b"


# BMv2 forwards frames as they are: no checksum left to hardware, no segment above the MTU. Hosts of gradlane-switch,
# which would cut them, do the same. Cross traffic is not worth a checksum, and a kernel before 6.11 cuts one large UDP
# send into datagrams only without one.
_HOST_OFFLOADS = {
    "worker": "tx off sg off tso off gso off gro on",
    "server": "tx off sg off tso off gso off gro on",
    "traffic": "tx on sg off tso off gso off tx-udp-segmentation off",
}


def _host_script(host: HostPlan, plan: FabricPlan) -> str:
    interface = host.interface
    commands = [
        "ip link set dev lo up",
        f"ip link set dev {interface} down mtu 1500",
        _no_ipv6(interface),
        f"ethtool -K {interface} {_HOST_OFFLOADS[host.role]}",
        f"ip address add {host.address}/24 dev {interface}",
        f"ip link set dev {interface} up",
        f"ip neighbour replace {host.gateway} lladdr {host.gateway_mac} dev {interface} nud permanent",
        f"ip route replace default via {host.gateway} dev {interface}",
    ]
    if host.role != "traffic":
        # Cross traffic comes from a whole network behind that port: no single link's rate.
        commands.append(token_bucket(interface, plan.rate, limit=1_000_000))
    return "\n".join(commands)


def _port_script(host: HostPlan, plan: FabricPlan, shape: bool) -> str:
    interface = host.port_interface
    commands = [
        f"ip link set dev {interface} down mtu 1500",
        _no_ipv6(interface),
        f"ethtool -K {interface} rx off tx off sg off tso off gso off gro off",
        f"ip link set dev {interface} up",
    ]
    if shape:
        commands.append(token_bucket(interface, plan.rate, limit=plan.buffer))
    return "\n".join(commands)


def _no_ipv6(interface: str) -> str:
    path = f"/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"
    return f"if [ -e {path} ]; then echo 1 > {path}; fi"
