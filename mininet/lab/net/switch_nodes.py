# SPDX-License-Identifier: Apache-2.0
"""P4 switches of Mininet: `net.addSwitch("s1", cls=GradlaneSwitch, program="p.json", p4info="p.txtpb")`, or Bmv2Switch.

Their ports are the switch's interfaces by Mininet's port numbers. Without a program they wait for a P4Runtime
controller.
"""

import re
import shutil
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mininet.log import error
from mininet.net import Mininet
from mininet.node import Switch

from gradlane.units import parse_rate, parse_size
from lab.net.forks import END_WITH_PARENT
from lab.net.interfaces import PORT_OFFLOADS, Interface, Shape, priority_port
from lab.net.processes import listens

_FIRST_THRIFT_PORT = 9090  # of BMv2's own command line; its device id counts from 1
_FIRST_P4RUNTIME_PORT = 9559
_READY_SECONDS, _STOP_SECONDS, _POLL_SECONDS = 60.0, 10.0, 0.02


class P4Switch(Switch, ABC):
    """A switch node whose shell, and with it the namespace, ends with this process, however that ends.

    `grpc` is the P4Runtime server's address; by default 127.0.0.1 and 9558 plus the device id, which is the number in
    the name. `settings` are those of a port by its number ("rate=100mbit,buffer=64kB"), `setting` those of all others.
    The log is `log`, by default below /tmp. `flags` are appended to the command line.

    start() raises RuntimeError with the switch's last words if it does not become ready, and FabricError if a port
    can't be had as it was asked for.
    """

    program = ""  # the command

    def __init__(
        self,
        name: str,
        *,
        device_id: int | None = None,
        grpc: str | None = None,
        setting: str = "",
        settings: Mapping[int, str] | None = None,
        log: str | Path | None = None,
        flags: Sequence[str] = (),
        **params: Any,
    ) -> None:
        if device_id is not None:
            params.setdefault("dpid", f"{device_id:x}")
        super().__init__(name, **params)
        self.device_id = int(self.dpid, 16) if device_id is None else device_id
        self.grpc = grpc or f"127.0.0.1:{_FIRST_P4RUNTIME_PORT - 1 + self.device_id}"
        self.log = Path(log or f"/tmp/{name}.log")
        self._setting = setting
        self._settings = dict(settings or {})
        self._flags = list(flags)
        self._process: Any = None

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        return super()._popen([*END_WITH_PARENT, *cmd], **params)

    def described_ports(self) -> dict[int, tuple[str, str]]:
        """(interface, setting) by port number, of the interfaces that the switch has now."""
        return {
            number: (interface.name, self._settings.get(number, self._setting))
            for number, interface in sorted(self.intfs.items())
            if number != 0 and interface.name != "lo"
        }

    def set_up_ports(self) -> None:
        """MTU, offloads and queues of every port, checked. Raises FabricError, or ValueError for a setting."""
        inside = ("mnexec", "-a", str(self.pid)) if self.inNamespace else ()
        for name, setting in self.described_ports().values():
            Interface(name, PORT_OFFLOADS, self._shape(setting), inside).set_up()

    @abstractmethod
    def command(self) -> list[str]:
        """The command line, by the interfaces that the switch has now. Raises RuntimeError."""

    def start(self, controllers: Sequence[Any]) -> None:
        """Starts the switch and waits until it is ready. Controllers of Mininet speak OpenFlow, so they are ignored."""
        del controllers
        if self.inNamespace:
            self.cmd("ip link set dev lo up")  # for the P4Runtime server
        self.set_up_ports()
        with self.log.open("wb") as log:
            words = [*END_WITH_PARENT, *self.command()]
            self._process = self.popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _READY_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = (self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
                raise RuntimeError(f"{self.name}: {self.program} is not ready: {last} (log: {self.log})")
            time.sleep(_POLL_SECONDS)

    def stop(self, deleteIntfs: bool = True) -> None:
        """Ends the switch, by SIGTERM: packets that wait may leave."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_SECONDS)
            self._process = None
        super().stop(deleteIntfs)

    def _find_program(self) -> str:
        found = shutil.which(self.program, path=f"{Path(sys.executable).parent}") or shutil.which(self.program)
        if found is None:
            raise RuntimeError(f"{self.program} is not installed")
        return found

    @abstractmethod
    def _shape(self, setting: str) -> Shape:
        """What the kernel does at a port with that setting. Raises ValueError."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the switch takes requests."""


class GradlaneSwitch(P4Switch):
    """A node that runs gradlane-switch.

    `program` and `p4info` are files of p4c, `entries` a p4.v1.WriteRequest in text format; the admin socket is `admin`,
    by default below /tmp. Of a port's setting the switch itself makes everything: rate, buffer, impairments.
    """

    program = "gradlane-switch"

    def __init__(
        self,
        name: str,
        *,
        program: str | Path | None = None,
        p4info: str | Path | None = None,
        entries: str | Path | None = None,
        admin: str | Path | None = None,
        **params: Any,
    ) -> None:
        super().__init__(name, **params)
        self.admin = Path(admin or f"/tmp/{name}.sock")
        self._files = {"program": program, "p4info": p4info, "entries": entries}

    def command(self) -> list[str]:
        words = [self._find_program(), "--device-id", str(self.device_id), "--grpc-server-addr", self.grpc]
        words += ["--admin", str(self.admin)]
        for flag, value in self._files.items():
            words += [] if value is None else [f"--{flag}", str(value)]
        for number, (interface, setting) in self.described_ports().items():
            words += ["-i", f"{number}@{interface}{setting and ','}{setting}"]
        return words + self._flags

    def _shape(self, setting: str) -> Shape:
        return Shape()

    def _is_ready(self) -> bool:
        return "ready device" in self.log.read_text(errors="replace")


class Bmv2Switch(P4Switch):
    """A node that runs BMv2's simple_switch_grpc, with eight priority queues per port.

    BMv2 has no link rate, so the kernel gives it one behind each port, with a queue for each class
    (interfaces.priority_port). A port's setting may have `rate` and `buffer`. `dscp_classes`: the queue class of
    ordinary traffic by its DSCP, for these queues. `program` is p4c's JSON. `cpu_port`: 0 for none. `notifications`:
    path of the socket for BMv2's own events, by default below /tmp.
    """

    program = "simple_switch_grpc"

    def __init__(
        self,
        name: str,
        *,
        program: str | Path | None = None,
        dscp_classes: Mapping[int, int] | None = None,
        cpu_port: int = 0,
        notifications: str | Path | None = None,
        **params: Any,
    ) -> None:
        super().__init__(name, **params)
        self._json = program
        self._dscp_classes = dict(dscp_classes or {})
        self._cpu_port = cpu_port
        self._notifications = Path(notifications or f"/tmp/{name}.ipc")

    def command(self) -> list[str]:
        words = [self._find_program(), "--device-id", str(self.device_id)]
        words += ["--notifications-addr", f"ipc://{self._notifications}"]
        if "--thrift-port" in subprocess.run([words[0], "--help"], capture_output=True, text=True, check=False).stdout:
            words += ["--thrift-port", str(_FIRST_THRIFT_PORT - 1 + self.device_id)]  # opened in any case if built in
        for number, (interface, _) in self.described_ports().items():
            words += ["-i", f"{number}@{interface}"]
        words += ["--no-p4"] if self._json is None else [str(self._json)]
        words += ["--", "--grpc-server-addr", self.grpc, "--priority-queues", "8"]
        words += ["--cpu-port", str(self._cpu_port)] if self._cpu_port else []
        return words + self._flags

    def _shape(self, setting: str) -> Shape:
        values: dict[str, str] = {}
        for word in filter(None, setting.split(",")):
            key, _, values[key] = word.partition("=")
        unknown = set(values) - {"rate", "buffer"}
        if unknown:
            raise ValueError(f"{self.name}: BMv2 has no {min(unknown)!r} for a port; rate and buffer can be set")
        if not values:
            return Shape()
        if len(values) == 1:
            raise ValueError(f"{self.name}: {setting!r} must have both, rate and buffer: a queue needs either")
        return priority_port(parse_rate(values["rate"]), parse_size(values["buffer"]), self._dscp_classes)

    def _is_ready(self) -> bool:
        match = re.fullmatch(r"[^:]+:(\d+)", self.grpc)
        if match is None:
            raise RuntimeError(f"{self.name}: grpc is {self.grpc!r}; it must be host:port")
        if not self.inNamespace:
            return listens(int(match[1]))
        probe = f"import socket; socket.create_connection(('127.0.0.1', {match[1]}), 1).close()"
        return self.popen([sys.executable, "-c", probe], stderr=subprocess.DEVNULL).wait() == 0


class P4Mininet(Mininet):
    """A network whose links can be taken down beside BMv2, at the prompt too.

    BMv2 stops to read all of its ports while one of them is administratively down
    (github.com/p4lang/behavioral-model/issues/1215). So only ends of others are set; BMv2's lose their carrier then.
    """

    def configLinkStatus(self, src: str, dst: str, status: str) -> None:
        links = [link for link in self.links if {src, dst} == {link.intf1.node.name, link.intf2.node.name}]
        ends = [end for link in links for end in (link.intf1, link.intf2) if not isinstance(end.node, Bmv2Switch)]
        if not ends:
            why = "both its ends are BMv2's, which hangs while a port of it is down" if links else "it is not there"
            error(f"link {src} {dst} can't be set {status}: {why}\n")
        for end in ends:
            end.ifconfig(status)
