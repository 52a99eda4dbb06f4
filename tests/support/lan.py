# SPDX-License-Identifier: Apache-2.0
"""Hosts in network namespaces on one bridge."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from tests.support.agents import Agent, running
from tests.support.namespaces import Namespaces, ip


class Lan(Namespaces):
    """Hosts 0..n-1 at 10.77.0.1.. (or fd77::1..), each in a namespace, on the bridge of one of its own, `bridge`."""

    def __init__(self, hosts: int, family: int = 4) -> None:
        self._prefix, self._family = f"gla{os.getpid()}", family
        self.bridge = f"{self._prefix}b"
        self.addresses = [f"10.77.0.{k + 1}" if family == 4 else f"fd77::{k + 1}" for k in range(hosts)]
        super().__init__(self.bridge, *(self.space(k) for k in range(hosts)))

    def _build(self) -> None:
        ip("-n", self.bridge, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.bridge, "link", "set", "bridge", "up")
        for k, address in enumerate(self.addresses):
            ends = ("link", "add", f"p{k}", "netns", self.bridge, "type", "veth")
            ip(*ends, "peer", "name", "eth0", "netns", self.space(k))
            ip("-n", self.bridge, "link", "set", f"p{k}", "master", "bridge", "up")
            bits, more = (24, ()) if self._family == 4 else (64, ("nodad",))
            ip("-n", self.space(k), "addr", "add", f"{address}/{bits}", "dev", "eth0", *more)
            ip("-n", self.space(k), "link", "set", "eth0", "up")

    def space(self, number: int) -> str:
        """Namespace of a host."""
        return f"{self._prefix}n{number}"

    def port(self, number: int, *settings: str) -> None:
        """`ip link set` for the bridge's end of a host's link."""
        ip("-n", self.bridge, "link", "set", f"p{number}", *settings)

    def agents(self, folder: Path) -> contextlib.AbstractContextManager[list[Agent]]:
        """One for each host."""
        places = enumerate(self.addresses)
        return running(*(Agent(at, folder / f"{k}.sock", prefix=self.inside(self.space(k))) for k, at in places))
