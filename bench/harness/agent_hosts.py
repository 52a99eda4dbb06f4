# SPDX-License-Identifier: Apache-2.0
"""Hosts with an agent each: network namespaces around a Linux bridge, or addresses of one loopback. For measurements of
the agent itself."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tomli_w

from bench.harness import job
from bench.harness.netns import Namespaces, run
from bench.harness.worker import Worker

MTU = 1500
FURTHER = 2  # addresses of a host
# Of a port of limited rate: what it holds, and what it sends at once, which is no less than the kernel's largest frame.
_BUFFER, _BURST = 400_000, 70_000  # bytes


class AgentHosts(Namespaces, ABC):
    """Hosts 0..n-1, each with an address of its own on `interface`. Raises FabricError."""

    interface: str

    def __init__(self, count: int, names: Sequence[str]) -> None:
        self.count = count
        super().__init__(names)

    @abstractmethod
    def namespace(self, host: int) -> str:
        """Of a host."""

    @abstractmethod
    def address(self, host: int) -> str:
        """Of a host."""

    @abstractmethod
    def further_address(self, host: int, number: int) -> str:
        """Of a host, 1 to FURTHER, for another agent on it."""

    def start(
        self, stack: ExitStack, host: int, name: str, *command: str, asked: bool = True, logs: bool = False
    ) -> Worker:
        """A process of this Python on a host, with one thread for arithmetic, until the stack ends."""
        words = ["ip", "netns", "exec", self.namespace(host), sys.executable, *command]
        one_thread = {"OMP_NUM_THREADS": "1"}
        return stack.enter_context(
            Worker(f"{name} on host {host}", words, asked=asked, logs=logs, environment=one_thread)
        )

    def start_agent(
        self, stack: ExitStack, host: int, folder: Path, configuration: Path | None = None
    ) -> tuple[Worker, Path]:
        """The agent of a host, ready, and its socket. Raises ProcessError."""
        path = folder / f"agent{host}.sock"
        words = ("-m", "gradlane.cli", "agent", "--address", self.address(host), "--socket", str(path))
        words += ("--config", str(configuration)) if configuration else ()
        agent = self.start(stack, host, "the agent", *words, asked=False, logs=True)
        agent.wait_for("ready")
        return agent, path

    def write_job(
        self,
        path: Path,
        rate: int,
        buffer: int,
        *,
        number: int = 1,
        at: int = 0,
        hosts: Sequence[int] | None = None,
        tolerance: float | None = None,
        transport: Mapping[str, Any] | None = None,
        sync: Mapping[str, Any] | None = None,
    ) -> Path:
        """Writes the job file of workers on all hosts, or on those given, at their further address `at` if it is not 0;
        the rest as job.document takes it."""
        places = range(self.count) if hosts is None else hosts
        members = [(f"h{host}", self.further_address(host, at) if at else self.address(host)) for host in places]
        document = job.document(f"bench{number}", number, members, rate, buffer, tolerance, transport, sync)
        path.write_text(tomli_w.dumps(document), encoding="utf-8")
        return path


class Hosts(AgentHosts):
    """Namespaces of hosts 0..n-1, host k at 10.77.0.(k+1) on eth0. Raises FabricError.

    `rate` (bit/s) limits the bridge's ports towards the hosts (tbf); without it there is no limit. Offloads stay as the
    kernel has them.
    """

    interface = "eth0"

    def __init__(self, count: int, mtu: int = MTU, rate: int | None = None) -> None:
        self._mtu, self._rate = mtu, rate
        self._prefix = f"gla{os.getpid()}"
        self._bridge = f"{self._prefix}s"
        super().__init__(count, (self._bridge, *map(self.namespace, range(count))))

    def namespace(self, host: int) -> str:
        """Of a host."""
        return f"{self._prefix}h{host}"

    def address(self, host: int) -> str:
        """Of a host."""
        return f"10.77.0.{host + 1}"

    def further_address(self, host: int, number: int) -> str:
        """Of a host."""
        return f"10.78.{number}.{host + 1}"

    def _build(self) -> None:
        # Where br_netfilter is loaded, frames of a bridge would pass the machine's packet filter.
        for family in ("ip", "ip6"):
            if Path(f"/proc/sys/net/bridge/bridge-nf-call-{family}tables").exists():
                switch = f"net.bridge.bridge-nf-call-{family}tables=0"
                run("ip", "netns", "exec", self._bridge, "sysctl", "-qw", switch)
        run("ip", "-n", self._bridge, "link", "add", "br0", "type", "bridge")
        run("ip", "-n", self._bridge, "link", "set", "br0", "mtu", str(self._mtu), "up")
        for host in range(self.count):
            self._link(host)

    def _link(self, host: int) -> None:
        namespace, port = self.namespace(host), f"port{host}"
        peer = ("peer", "name", "eth0", "netns", namespace)
        run("ip", "link", "add", port, "netns", self._bridge, "type", "veth", *peer)
        run("ip", "-n", self._bridge, "link", "set", port, "master", "br0", "mtu", str(self._mtu), "up")
        run("ip", "-n", namespace, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        run("ip", "-n", namespace, "link", "set", "eth0", "mtu", str(self._mtu), "up")
        for number in range(1, FURTHER + 1):  # not on eth0: Open MPI hangs where that has several
            run("ip", "-n", namespace, "addr", "add", f"{self.further_address(host, number)}/32", "dev", "lo")
            run("ip", "-n", namespace, "route", "add", f"10.78.{number}.0/24", "dev", "eth0")
        if self._rate is not None:
            self.limit(host, self._rate)

    def limit(self, host: int, rate: int) -> None:
        """From now on the bridge's port towards the host has this rate, in bit/s. Raises FabricError."""
        self._limit(self._bridge, f"port{host}", rate)

    def limit_both_ways(self, host: int, rate: int) -> None:
        """The same, and that of the host towards the bridge. Raises FabricError."""
        self.limit(host, rate)
        self._limit(self.namespace(host), "eth0", rate)

    def _limit(self, namespace: str, device: str, rate: int) -> None:
        bucket = ("tbf", "rate", f"{rate}bit", "burst", str(_BURST), "limit", str(_BUFFER))
        run("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *bucket)


class Loopback(AgentHosts):
    """All hosts in one namespace, as on one machine: host k at 127.0.0.(k+1), or 127.0.1.1 and so on from the 251st on.
    Raises FabricError."""

    interface = "lo"

    def __init__(self, count: int) -> None:
        self._only = f"gll{os.getpid()}"
        super().__init__(count, (self._only,))

    def namespace(self, host: int) -> str:
        """The same for all."""
        return self._only

    def address(self, host: int) -> str:
        """Of a host."""
        return f"127.0.{host // 250}.{host % 250 + 1}"

    def further_address(self, host: int, number: int) -> str:
        """Of a host."""
        return f"127.{number}.{host // 250}.{host % 250 + 1}"
