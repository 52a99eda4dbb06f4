# SPDX-License-Identifier: Apache-2.0
"""gradlane-switch as a switch of Mininet: `net.addSwitch("s1", cls=GradlaneSwitch, program="p.json", p4info="p.txt")`.

Its ports are the switch's interfaces by Mininet's port numbers. Without a program it waits for a P4Runtime controller.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mininet.node import Switch

from processes import END_WITH_PARENT

_FIRST_P4RUNTIME_PORT = 9559
_READY_SECONDS, _STOP_SECONDS, _POLL_SECONDS = 60.0, 10.0, 0.02


class TiedSwitch(Switch):
    """A Mininet switch whose shell, and with it the namespace, ends with this process, however that ends."""

    def _popen(self, cmd: Sequence[str], **params: Any) -> Any:
        return super()._popen([*END_WITH_PARENT, *cmd], **params)


class GradlaneSwitch(TiedSwitch):
    """A node that runs gradlane-switch.

    `program` and `p4info` are files of p4c, `entries` a p4.v1.WriteRequest in text format. `grpc` is the P4Runtime
    server's address; by default 127.0.0.1 and 9558 plus the device id, which is the number in the name. `settings` are
    those of a port by its number ("rate=100mbit,buffer=64kB"), `setting` those of all others. Log and admin socket are
    `log` and `admin`, by default below /tmp. `flags` are appended to the command line.

    start() raises RuntimeError with the switch's last words if it does not become ready.
    """

    def __init__(
        self,
        name: str,
        *,
        program: str | Path | None = None,
        p4info: str | Path | None = None,
        entries: str | Path | None = None,
        device_id: int | None = None,
        grpc: str | None = None,
        setting: str = "",
        settings: Mapping[int, str] | None = None,
        log: str | Path | None = None,
        admin: str | Path | None = None,
        flags: Sequence[str] = (),
        **params: Any,
    ) -> None:
        super().__init__(name, **params)
        self.device_id = int(self.dpid, 16) if device_id is None else device_id
        self.grpc = grpc or f"127.0.0.1:{_FIRST_P4RUNTIME_PORT - 1 + self.device_id}"
        self.log = Path(log or f"/tmp/{name}.log")
        self.admin = Path(admin or f"/tmp/{name}.sock")
        self._files = {"program": program, "p4info": p4info, "entries": entries}
        self._setting = setting
        self._settings = dict(settings or {})
        self._flags = list(flags)
        self._process: Any = None

    def command(self) -> list[str]:
        """The command line, by the interfaces that the switch has now. Raises RuntimeError."""
        found = shutil.which("gradlane-switch", path=f"{Path(sys.executable).parent}") or shutil.which(
            "gradlane-switch"
        )
        if found is None:
            raise RuntimeError("gradlane-switch is not installed: pip install gradlane-switch")
        words = [found, "--device-id", str(self.device_id), "--grpc-server-addr", self.grpc, "--admin", str(self.admin)]
        for flag, value in self._files.items():
            words += [] if value is None else [f"--{flag}", str(value)]
        for number, interface in sorted(self.intfs.items()):
            if number == 0 or interface.name == "lo":
                continue
            setting = self._settings.get(number, self._setting)
            words += ["-i", f"{number}@{interface.name}{setting and ','}{setting}"]
        return words + self._flags

    def start(self, controllers: Sequence[Any]) -> None:
        """Starts the switch and waits until it is ready. Controllers of Mininet speak OpenFlow, so they are ignored."""
        del controllers
        for interface in self.intfList():
            if interface.name != "lo":
                offloads = " ".join(f"{what} off" for what in ("rx", "tx", "sg", "tso", "gso", "gro"))
                self.cmd(f"ethtool -K {interface.name} {offloads}")
        with self.log.open("wb") as log:
            words = [*END_WITH_PARENT, *self.command()]
            self._process = self.popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + _READY_SECONDS
        while "ready device" not in (said := self.log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > deadline:
                last = (said.strip().splitlines() or ["it said nothing"])[-1]
                raise RuntimeError(f"{self.name}: gradlane-switch is not ready: {last} (log: {self.log})")
            time.sleep(_POLL_SECONDS)

    def stop(self, deleteIntfs: bool = True) -> None:
        """Ends the switch, by SIGTERM: packets that wait may leave."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_STOP_SECONDS)
            self._process = None
        super().stop(deleteIntfs)
