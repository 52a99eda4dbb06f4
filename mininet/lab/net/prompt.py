# SPDX-License-Identifier: Apache-2.0
"""Mininet's prompt, on a network whose processes are not those of its nodes."""

import logging
import sys
from typing import IO, Any, TextIO, cast

from mininet.cli import CLI
from mininet.log import error, lg, setLogLevel

from lab.model.errors import LabError
from lab.net.network import Network
from lab.net.switch_nodes import P4Mininet


class Prompt(CLI):
    """Takes commands until it is left, or `script` ends. `stdin`: where the first come from; the script's get it."""

    def __init__(self, network: Network, stdin: IO[str] = sys.stdin, script: str | None = None) -> None:
        self._network = network
        super().__init__(as_mininet(network), stdin=stdin, script=script)

    def do_switch(self, line: str) -> None:
        """switch NAME stop: it dies at once, with its links to other switches. switch NAME start: it comes back."""
        name, _, action = line.partition(" ")
        change = {
            (True, "stop"): self._network.fail_switch,
            (False, "start"): self._network.restore_switch,
        }.get((self._network.runs(name), action.strip()))
        if name not in self._network.fabric.switches or change is None:
            error("switch NAME stop, of one that runs; switch NAME start, of one that was stopped\n")
            return
        try:
            change(name)
        except LabError as problem:
            error(f"{problem}\n")


def as_mininet(network: Network) -> Any:
    """What runs, as a Mininet network: its prompt wants one."""
    setLogLevel("output")
    for handler in cast(list[logging.StreamHandler[TextIO]], lg.handlers):
        handler.setStream(sys.stdout)  # what the commands say is what a script wants
    P4Mininet.inited = True  # it would change the machine's sysctls for thousands of hosts
    net = P4Mininet(build=False, controller=None)
    fabric = network.fabric
    net.hosts, net.switches, net.links = [*fabric.hosts.values()], [*fabric.switches.values()], [*fabric.links]
    net.nameToNode = {**fabric.hosts, **fabric.switches}
    return net
