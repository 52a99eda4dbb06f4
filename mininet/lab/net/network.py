# SPDX-License-Identifier: Apache-2.0
"""A running network: a fabric, the process of every switch, the one controller of all, and agents on hosts."""

import signal
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tomli_w

from gradlane.controller_client import read_token
from lab.model.plan import HTTP_PORT, FabricPlan, HostPlan
from lab.model.preconditions import RUN_DIRECTORY, find_program
from lab.net.control import Controller
from lab.net.fabric import Fabric
from lab.net.processes import Child, Supervisor

READY_SECONDS = 60.0  # on a busy machine
PIPELINE_SECONDS = 180.0  # to the controller's readiness: a switch may have to compile the program
_RELOADED = "files read again"  # the controller's words when the switches hold what they say


class Network:
    """Use as a context manager; leaving it ends every process and removes every interface.

    Logs and files go below `out`. `neighbours` as Fabric takes it. Raises ExperimentError where something does not come
    up.
    """

    def __init__(self, plan: FabricPlan, out: Path, *, seed: int = 1, neighbours: bool = True) -> None:
        self.plan = plan
        self.fabric = Fabric(plan, seed=seed, neighbours=neighbours)
        self.supervisor = Supervisor(out / "logs")
        self._token_file = out / "fabric.db.token"
        self.controller = Controller(f"127.0.0.1:{HTTP_PORT}", self._token_file)
        self._out = out
        self._switches: dict[str, Child] = {}
        self._controller_process: Child | None = None
        self._reporting: set[str] = set()  # hosts that have a token for their agents' reports
        self._stack = ExitStack()

    def __enter__(self) -> "Network":
        with ExitStack() as stack:
            self._out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(self.fabric)
            stack.enter_context(self.supervisor)
            for switch in self.plan.switches:
                self._start_switch(switch.name)
            for switch in self.plan.switches:
                self._wait_for_switch(switch.name)
            self.start_controller()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    def start_agents(self, hosts: Iterable[HostPlan]) -> None:
        """The agents of these hosts, all ready at the end. Raises ProcessError."""
        agents: list[Child] = []
        for host in hosts:
            argv = [find_program("gradlane"), "agent", "--config", str(self._agent_config(host))]
            agents.append(self.supervisor.start(_agent_name(host), self.fabric.inside(host.name, argv)))
        for agent in agents:
            agent.wait_ready(READY_SECONDS)

    def admins(self) -> dict[str, Path]:
        """The admin sockets of the switches that have one, by name: those that run."""
        return {
            switch.name: RUN_DIRECTORY / f"{switch.name}.sock"
            for switch in self.plan.switches
            if switch.target == "gradlane" and switch.name in self._switches
        }

    def runs(self, switch: str) -> bool:
        """Whether that switch has not failed."""
        return switch in self._switches

    def fail_switch(self, name: str, *, links: bool = True) -> None:
        """That switch dies at once, and its `links` to other switches with it; or these keep their carrier."""
        child = self._switches.pop(name)
        child.signal_group(signal.SIGKILL)
        if links:
            self.fabric.set_links(name, up=False)
        self.supervisor.release([child])

    def restore_switch(self, name: str) -> None:
        """It comes back, empty; the controller finds it by itself, and in the end packets pass it as before."""
        self.fabric.set_links(name, up=True)
        self._start_switch(name)
        self._wait_for_switch(name)
        self.controller.wait_ready(PIPELINE_SECONDS)
        self.controller.wait_links(READY_SECONDS)

    def restart_agent(self, host: HostPlan) -> None:
        """That host's agent dies at once, and another one starts."""
        agents = [child for child in self.supervisor.children if child.name == _agent_name(host)]
        for agent in agents:
            agent.signal_group(signal.SIGKILL)
        self.supervisor.release(agents)
        self.start_agents([host])

    def restart_controller(self) -> None:
        """It dies at once, and another one takes its jobs over."""
        assert self._controller_process is not None
        self._controller_process.signal_group(signal.SIGKILL)
        self.supervisor.release([self._controller_process])
        self._run_controller()

    def reload_controller(self, fabric: dict[str, Any]) -> None:
        """It takes over another fabric's file, before it is TOML, of the same switches. Raises ProcessError if it does
        not."""
        assert self._controller_process is not None
        self._write_fabric(fabric)
        before = self._controller_process.count(_RELOADED)
        self._controller_process.signal_group(signal.SIGHUP)
        self._controller_process.wait_count(_RELOADED, before + 1, READY_SECONDS)

    @property
    def page(self) -> str:
        """Where a browser on this machine sees it live, for who may read this line."""
        return f"http://127.0.0.1:{HTTP_PORT}/#token={read_token(self._token_file)}"

    def processes(self) -> dict[str, int]:
        """The pids of what runs, by name; those of the hosts' agents, and not of their shells."""
        return {child.name: child.pid for child in self.supervisor.children}

    def _start_management(self) -> None:
        hosts = (str(it.pid) for it in self.fabric.hosts.values())
        argv = [sys.executable, "-m", "lab.net.management", str(HTTP_PORT), *hosts]
        self.supervisor.start("management network", argv).wait_ready(READY_SECONDS)

    def _agent_config(self, host: HostPlan) -> Path:
        """The configuration file of that host's agent. Raises ControlError."""
        file = self._out / "agents" / f"{host.name}.toml"
        config: dict[str, Any] = {"address": host.address, "socket": agent_socket(host)}
        if self._controller_process is not None:
            token_file = file.with_suffix(".token")
            if host.name not in self._reporting:
                token_file.parent.mkdir(exist_ok=True)
                token_file.touch(mode=0o600)
                token_file.write_text(self.controller.make_token(host.name, "agents", host.name), encoding="ascii")
                self._reporting.add(host.name)
            config["controller"] = {"url": f"http://127.0.0.1:{HTTP_PORT}", "token_file": str(token_file.absolute())}
        file.parent.mkdir(exist_ok=True)
        file.write_text(tomli_w.dumps(config), encoding="utf-8")
        return file

    def _start_switch(self, name: str) -> None:
        self._switches[name] = self.supervisor.start(f"switch {name}", self.fabric.switches[name].command())

    def _wait_for_switch(self, name: str) -> None:
        (switch,) = [switch for switch in self.plan.switches if switch.name == name]
        if switch.target == "bmv2":
            self._switches[name].wait_listening(switch.p4runtime_port, READY_SECONDS)
        else:
            self._switches[name].wait_ready(READY_SECONDS)

    def start_controller(self) -> None:
        """Starts what configures the switches, and waits until it has. Raises ExperimentError."""
        file = self._write_fabric(self.plan.document())
        for suffix in (".db", ".db-wal", ".db-shm"):  # where it keeps jobs; those of an earlier run
            file.with_suffix(suffix).unlink(missing_ok=True)
        self._run_controller()
        self._start_management()

    def _write_fabric(self, fabric: dict[str, Any]) -> Path:
        file = self._out / "fabric.toml"
        file.write_text(tomli_w.dumps(fabric), encoding="utf-8")
        return file

    def _run_controller(self) -> None:
        file = self._out / "fabric.toml"
        argv = [find_program("gradlane-controller"), "run", "--fabric", str(file), "--http", f"127.0.0.1:{HTTP_PORT}"]
        self._controller_process = self.supervisor.start("controller", argv)
        self._controller_process.wait_ready(PIPELINE_SECONDS)


def _agent_name(host: HostPlan) -> str:
    return f"agent of {host.name}"


def agent_socket(host: HostPlan) -> str:
    """The Unix socket of that host's agent."""
    return str(RUN_DIRECTORY / f"{host.name}.sock")
