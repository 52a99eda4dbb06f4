# SPDX-License-Identifier: Apache-2.0
"""Runs a leaf-spine of gradlane-switch under attack for long: two jobs must never end, nor lose more than they may.

A hostile tenant at an edge port plays one attack after the other at the port's line rate, strangers talk to the
agents' control ports, the controller's HTTP API and the switches' P4Runtime; meanwhile links flap, spines and the
controller are killed and come back, and so does the agent of a third job, the only one that may end. The jobs'
processes check every result by themselves. Memory and open files of all processes must not grow: the most that each
holds in the last third of the run is compared with the most in the second. The table says what each attack did to the
jobs.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any

import grpc
import tomli_w
from finsy.proto import p4r, p4r_grpc

from bench.fabric import soaking
from bench.fabric.attacks import attacks
from bench.fabric.growth import Held, Usage, grown, held, usage_of
from bench.fabric.soaking import failures
from bench.harness.job import document
from bench.harness.netns import run
from bench.harness.wires import compiled
from bench.harness.worker import Worker
from lab.experiment.runner import ready_machine
from lab.model.errors import ExperimentError
from lab.model.plan import HTTP_PORT, FabricPlan, HostPlan, SwitchPlan
from lab.model.topology import Topology
from lab.report.tables import TextTable

_HOSTS = 7  # two of each job, and the tenant's
_BUFFER = 64_000
_POLICY = {
    "queue_classes": [{"layers": [0, 65535], "class": 5}],
    "drop_precedences": [{"magnitudes": [0, 255], "drop_precedence": 2}],
}
_DIRECT = {"slice_bytes": 1024, "collective": "direct"}
_WINDOW_SECONDS = 10.0
_FRAMING = 24  # bytes on the link beside a frame: preamble, check sequence, gap
_LONGEST_WINDOW = 3600
_SENDER = Path(__file__).parents[1] / "switch" / "switch_load.c"


@dataclass
class Window:
    """What happened while an attack went on: steps of the jobs, by name; what was disturbed; what broke.

    `offered`: of the link's rate, by the tenant; `usage`: bytes and open files by process, at the end.
    """

    attack: str
    disturbance: str
    seconds: float = 0.0
    offered: float = 0.0
    usage: Usage = field(default_factory=Usage)
    steps: dict[str, int] = field(default_factory=dict[str, int])
    broke: list[str] = field(default_factory=list[str])


@dataclass
class Report:
    """`held`: the most bytes and open files of a process, in the second third of the run and in the last."""

    seconds: float = 0
    windows: list[Window] = field(default_factory=list[Window])
    lacking: int = 0
    held: Held = field(default_factory=Held)
    failures: list[str] = field(default_factory=list[str])


class Job:
    """A job of some hosts, and its processes. `transport`: of its file."""

    def __init__(
        self,
        network: Any,
        name: str,
        number: int,
        hosts: Sequence[HostPlan],
        tolerance: float,
        out: Path,
        transport: Mapping[str, Any] = _DIRECT,
    ):
        self.name, self._network, self._hosts, self._tolerance = name, network, hosts, tolerance
        self._workers: list[Worker] = []
        self.last = {"steps": 0, "lacking": 0, "violations": 0}
        plan = network.plan
        made = dict(document(name, number, [(h.name, h.address) for h in hosts], plan.rate, _BUFFER, tolerance))
        made["transport"] |= transport
        made["loss"] |= {"pull": 0.0, "error_feedback": False}
        made |= {"policy": _POLICY, "slots": {"base": 4096 * number, "mask": 4095}}
        network.controller.put_job(made)
        self._file = out / f"{name}.toml"
        self._file.write_text(tomli_w.dumps(made), encoding="utf-8")

    def start(self) -> None:
        """Its processes, from the beginning."""
        from lab.net.network import agent_socket

        self.end()
        for rank, host in enumerate(self._hosts):
            words = (rank, len(self._hosts), self._file, agent_socket(host), self._tolerance)
            argv = [sys.executable, "-m", "bench.fabric.soak_worker", *map(str, words)]
            inside = self._network.fabric.inside(host.name, argv)
            self._workers.append(Worker(f"{self.name} at {host.name}", inside, asked=False))

    def wait(self) -> None:
        """Until it trains. Raises ProcessError."""
        for worker in self._workers:
            worker.wait_for("ready", 120)

    def look(self) -> tuple[int, list[str]]:
        """Steps since the last look, and what must not have happened."""
        before, broke = dict(self.last), []
        for worker in self._workers:
            for line in worker.rest():
                with suppress(ValueError):
                    self.last = json.loads(line)
            if worker.ended():
                broke.append(f"{worker.name} ended: {worker.last_words().splitlines()[-1][:300]}")
        if self.last["violations"] > before["violations"]:
            broke.append(f"job {self.name} lost more than it may")
        return max(0, self.last["steps"] - before["steps"]), broke

    def end(self) -> None:
        """Its processes."""
        while self._workers:
            worker = self._workers.pop()
            worker.process.kill()
            worker.end()
        self.last = {"steps": 0, "lacking": 0, "violations": 0}


class Strangers:
    """Those who talk to the controller and to the switches, each in a thread, until they are stopped."""

    def __init__(self, switches: Sequence[SwitchPlan]) -> None:
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._read_all, args=[switch]) for switch in switches]
        self._threads.append(threading.Thread(target=self._garbage))

    def __enter__(self) -> Strangers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _read_all(self, switch: SwitchPlan) -> None:
        kinds: Sequence[Any] = (
            p4r.Entity(table_entry=p4r.TableEntry()),
            p4r.Entity(counter_entry=p4r.CounterEntry()),
            p4r.Entity(register_entry=p4r.RegisterEntry()),
        )
        with grpc.insecure_channel(switch.address) as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            for entity in cycle(kinds):
                if self._stop.wait(0.05):
                    return
                with suppress(grpc.RpcError):
                    for _ in stub.Read(p4r.ReadRequest(device_id=switch.index, entities=[entity]), timeout=5):
                        pass

    def _garbage(self) -> None:
        requests = (
            b"GET / HTTP/1.1\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            b"\0" * 9000,
        )
        request = b"GET /v1/status HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n\r\n"
        for words in cycle((*requests, request)):
            if self._stop.wait(0.02):
                return
            with suppress(OSError), socket.create_connection(("127.0.0.1", HTTP_PORT), 1) as connection:
                connection.sendall(words)
                connection.settimeout(0.1)
                connection.recv(100)


def _disturbances(network: Any, doomed: Job, doomed_host: HostPlan) -> dict[str, Callable[[], None]]:
    def kill_agent() -> None:
        doomed.end()
        network.restart_agent(doomed_host)
        doomed.start()

    shared, names = failures(network), ("nothing", "a link flaps", "the controller is killed", "a spine is killed")
    return {**{name: shared[name] for name in names}, "an agent is killed": kill_agent}


class Tenant:
    """The hostile one: sends a frame at its link's rate."""

    def __init__(self, network: Any, host: HostPlan, sender: Path) -> None:
        self._network, self._host, self._sender = network, host, sender
        self._rate = int(network.plan.rate)

    @contextmanager
    def flood(self, window: Window, frame: bytes) -> Generator[None, None, None]:
        """Sends while the block runs, and notes in the window what it has offered."""
        line_rate = self._rate / 8 / (len(frame) + _FRAMING)
        pace = f"pace {self._host.interface} {line_rate} {_LONGEST_WINDOW} {frame.hex()}"
        argv = ["chrt", "--rr", "1", str(self._sender), *pace.split()]
        began, before = time.monotonic(), self._sent()
        with Worker(window.attack, self._network.fabric.inside(self._host.name, argv), asked=False) as worker:
            yield
            if worker.ended():
                window.broke.append(f"the flood ended: {worker.last_words()}")
        window.seconds = round(time.monotonic() - began, 1)
        window.offered = round((self._sent() - before) / (line_rate * window.seconds), 2)

    def _sent(self) -> int:
        argv = ["ip", "-json", "-statistics", "link", "show", "dev", self._host.interface]
        [link] = json.loads(run(*self._network.fabric.inside(self._host.name, argv)))
        return int(link["stats64"]["tx"]["packets"])


def soak(options: argparse.Namespace, stack: ExitStack) -> Report:
    """Runs it. Raises ExperimentError."""
    from lab.net.network import Network

    plan = FabricPlan.of_hosts(Topology("leafspine", 2, 2), _HOSTS, options.rate, _BUFFER, "gradlane")
    stack.enter_context(ready_machine([plan]))
    network: Any = stack.enter_context(Network(plan, options.out))
    *members, host = plan.hosts
    tenant = Tenant(network, host, compiled(_SENDER, Path(stack.enter_context(tempfile.TemporaryDirectory()))))
    network.start_agents(members)
    lossy = Job(network, "lossy", 1, members[:2], 0.1, options.out)
    exact = Job(network, "exact", 2, members[2:4], 0.0, options.out)
    doomed = Job(network, "doomed", 3, members[4:], 0.0, options.out)
    for job in (lossy, exact, doomed):
        stack.callback(job.end)
        job.start()
    for job in (lossy, exact, doomed):
        job.wait()
    report, began = Report(), time.monotonic()
    stack.enter_context(Strangers(plan.switches))
    for member in members[:4]:
        argv = [sys.executable, "-m", "bench.fabric.attacks", member.address]
        stack.enter_context(Worker("strangers", network.fabric.inside(host.name, argv), asked=False))
    frames = attacks(host, members[0], 1)
    disturbances = _disturbances(network, doomed, members[4])
    # In the long run every attack meets every disturbance, as their numbers have no common divisor.
    for (attack, frame), (name, disturb) in zip(cycle(frames.items()), cycle(disturbances.items()), strict=False):
        window = Window(attack, name)
        with tenant.flood(window, frame):
            until = time.monotonic() + _WINDOW_SECONDS
            try:
                disturb()
            except ExperimentError as error:
                window.broke.append(f"{name}: {error}")
            time.sleep(max(0.0, until - time.monotonic()))
        for job in (lossy, exact):
            _look(job, window)
        window.usage = usage_of(network)
        report.windows.append(window)
        report.lacking = max(report.lacking, lossy.last["lacking"])
        report.failures += [f"{attack}, {name}: {text}" for text in window.broke]
        elapsed = time.monotonic() - began
        said = f"{elapsed:5.0f} of {options.seconds:.0f} s: {attack} ({window.offered:.0%}), {name}: "
        said += f"steps {window.steps}, {report.lacking} slices lost"
        print(said + "".join(f"; BROKE: {text}" for text in window.broke), file=sys.stderr, flush=True)
        if elapsed >= options.seconds:
            break
    report.seconds = round(time.monotonic() - began, 1)
    report.held = held([window.usage for window in report.windows])
    report.failures += grown(report.held)
    return report


def _look(job: Job, window: Window) -> None:
    window.steps[job.name], broke = job.look()
    window.broke += broke or ([] if window.steps[job.name] else [f"job {job.name} made no step"])
    if broke:  # anew, so that the next window tells what the next attack does
        job.start()
        job.wait()


def table(report: Report) -> TextTable:
    """A row for each attack: the steps of the window in which the jobs made the fewest a second."""
    rows: list[Sequence[str]] = []
    for attack in dict.fromkeys(window.attack for window in report.windows):
        windows = [window for window in report.windows if window.attack == attack]
        offered = min(window.offered for window in windows)
        steps = [min(w.steps[name] / w.seconds for w in windows) for name in windows[0].steps]
        broke = "; ".join(text for window in windows for text in window.broke)
        met = ", ".join(sorted({window.disturbance for window in windows}))
        rows.append((attack, f"{offered:.0%}", met, *(f"{each:.1f}" for each in steps), broke or "-"))
    title = "FAILED" if report.failures else "No job ended, no budget was exceeded, nothing grew"
    columns = ("attack", "of line rate", "meanwhile", "lossy job, steps/s", "exact job, steps/s", "broke")
    return TextTable(
        f"{title}, in {report.seconds:g} s; {report.lacking:,} slices were lost within their budgets", columns, rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; the exit status: 1 also if something happened that must not."""
    return soaking.main("soak", "soak-fabric.json", __doc__, soak, table, arguments)


if __name__ == "__main__":
    sys.exit(main())
