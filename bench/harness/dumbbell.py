# SPDX-License-Identifier: Apache-2.0
"""Hosts on both sides of a router, with one port of limited rate to each side: where the traffic of all pairs meets."""

from __future__ import annotations

from bench.harness.agent_hosts import Hosts
from bench.harness.netns import run

_BURST = 10_000  # bytes that a port sends at once


class Dumbbell(Hosts):
    """Hosts 2k (10.77.0.0/24) on one side, 2k + 1 (10.77.1.0/24) on the other; the router's port to a side has `rate`
    (bit/s) and a first-in first-out `buffer` (bytes).

    Hosts send frames as on a wire, without segmentation offloads: so all transports lose single frames at a full
    buffer. It routes because behind a bridge a frame that waits at the port still counts as its sender's, and TCP's
    limit of what it has in local queues (TSQ) would keep it from filling the buffer. Raises FabricError.
    """

    def __init__(self, pairs: int, rate: int, buffer: int) -> None:
        super().__init__(2 * pairs)
        self.rate, self.buffer = rate, buffer
        self._port = ("tbf", "rate", f"{rate}bit", "burst", str(_BURST), "limit", str(buffer))

    def address(self, host: int) -> str:
        """Of a host."""
        return f"10.77.{host % 2}.{host + 1}"

    def _build(self) -> None:
        super()._build()
        run("ip", "-n", self._bridge, "link", "add", "br1", "type", "bridge")
        run("ip", "-n", self._bridge, "link", "set", "br1", "up")
        for side in (0, 1):
            run("ip", "-n", self._bridge, "addr", "add", f"10.77.{side}.254/24", "dev", f"br{side}")
            run("tc", "-n", self._bridge, "qdisc", "add", "dev", f"br{side}", "root", *self._port)
        run("ip", "netns", "exec", self._bridge, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for host in range(self.count):
            run("ip", "-n", self._bridge, "link", "set", f"port{host}", "master", f"br{host % 2}")
            run("ip", "-n", self.namespace(host), "route", "add", "default", "via", f"10.77.{host % 2}.254")
            off = [word for what in ("tso", "gso", "gro") for word in (what, "off")]
            run("ip", "netns", "exec", self.namespace(host), "ethtool", "-K", "eth0", *off)
