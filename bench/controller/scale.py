# SPDX-License-Identifier: Apache-2.0
"""What the controller takes for fabrics of more and more switches, hosts and jobs: time, CPU, entries and memory.

The controller is a process as operators start it; its switches are simulated by another one (they hold entries and pass
on what shows whether links work). First it starts with all jobs but one, against empty switches; then again, against
switches that hold everything, of which it may change nothing; then the last job comes, links fail one after another,
and at last nothing happens for a while. Its CPU time says more than the time, as the simulation takes the same
processors.
"""

import argparse
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from bench.controller.large_fabric import LargeFabric
from bench.controller.simulated_switches import REAL
from bench.harness import benchmark
from bench.harness.usage import memory
from bench.harness.worker import Worker, ask_all
from lab import command_line
from lab.model.errors import ExperimentError
from lab.model.preconditions import find_program
from lab.net.control import Controller
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_WORKERS = 8
_PATIENCE = 600.0
_IDLE_SECONDS = 10.0
_POLL_SECONDS = 0.2
_LINKS = 6  # that fail


@dataclass(frozen=True)
class Size:
    """Of a leaf-spine fabric; jobs have eight workers each."""

    leaves: int
    spines: int
    hosts: int
    jobs: int

    @staticmethod
    def of(text: str) -> "Size":
        """From LEAVESxSPINESxHOSTSxJOBS. Raises ArgumentTypeError."""
        words = text.split("x")
        if len(words) != 4 or not all(word.isdecimal() for word in words):
            raise argparse.ArgumentTypeError(f"{text!r} must be LEAVESxSPINESxHOSTSxJOBS, e.g. {_SIZES[0]}")
        size = Size(*map(int, words))
        if min(size.leaves, size.spines, size.jobs) < 1 or size.jobs * _WORKERS > size.hosts:
            raise argparse.ArgumentTypeError(f"{text}: at least one of each, and {_WORKERS} hosts for each job")
        return size

    def __str__(self) -> str:
        return "x".join(map(str, (self.leaves, self.spines, self.hosts, self.jobs)))


_SIZES = (Size(6, 2, 128, 12), Size(12, 4, 256, 25), Size(24, 8, 512, 50), Size(48, 16, 1024, 100))


@dataclass(frozen=True)
class Phase:
    """Seconds until it was over, the controller's CPU time meanwhile, and the updates that switches got: how many, and
    how many switches got any."""

    seconds: float
    cpu_seconds: float
    updates: int
    switches: int


@dataclass(frozen=True)
class LinkDown(Phase):
    """A link that fails: seconds from then until the last switch has its last update, and until the failure is
    known."""

    known: float


@dataclass(frozen=True)
class Result:
    """`entries`: of all switches, and the most of one; `idle`: the part of a processor that it takes when nothing
    happens; `memory` in bytes. `violations`: what must not have been."""

    switches: int
    hosts: int
    jobs: int
    entries: int
    most_entries: int
    first: Phase
    again: Phase
    job_added: Phase
    links_down: list[LinkDown]
    idle: float
    memory: int
    violations: list[str]


class Running:
    """A controller's process and the simulated switches. Raises ExperimentError where something ends or hangs."""

    def __init__(self, switches: Worker, arguments: Sequence[str], token_file: Path) -> None:
        self._switches = switches
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._arguments = [find_program("gradlane-controller"), "run", "--http", address, *arguments]
        self.ask = Controller(address, token_file)
        self.process: Worker | None = None

    def start(self) -> None:
        """Until it is ready."""
        self.process = Worker("controller", self._arguments, asked=False, logs=True)
        self.process.wait_for("ready:", _PATIENCE)

    def end(self) -> None:
        """It stops as operators stop it."""
        if self.process is not None:
            self.process.end()
            self.process = None

    def command(self, **request: Any) -> Any:
        """What the switches answer."""
        return ask_all([self._switches], request)[0]

    def updates(self) -> dict[str, int]:
        """That each switch has got since this was last asked; only those that got any."""
        return {name: count for name, count in self.command(op="writes")["writes"].items() if count}

    def cpu(self) -> float:
        """Seconds that the controller has had."""
        return 0.0 if self.process is None else self.process.cpu_seconds()


def _phase(running: Running, act: Callable[[], object]) -> Phase:
    running.updates()
    cpu, began = running.cpu(), time.monotonic()
    act()
    took, used, updates = time.monotonic() - began, running.cpu() - cpu, running.updates()
    return Phase(round(took, 3), round(used, 3), sum(updates.values()), len(updates))


def measure(size: Size, folder: Path, kind: str) -> Result:
    """Runs one fabric of switches of that kind. Raises ExperimentError."""
    fabric = LargeFabric(size.leaves, size.spines, size.hosts)
    simulated = (sys.executable, "-m", "bench.controller.simulated_switches")
    with Worker("switches", [*simulated, *map(str, (size.leaves, size.spines, size.hosts)), kind]) as switches:
        ports = switches.hear(_PATIENCE).split()[1:]
        addresses = [f"127.0.0.1:{port}" for port in ports]
        file = folder / "fabric.toml"
        file.write_text(tomli_w.dumps(fabric.document(addresses)))
        arguments = ["--fabric", str(file)]
        jobs = [fabric.job(number, _WORKERS) for number in range(1, size.jobs + 1)]
        for job in jobs[:-1]:
            path = folder / f"{job['job']['name']}.toml"
            path.write_text(tomli_w.dumps(job))
            arguments += ["--job", str(path)]
        running = Running(switches, arguments, file.with_suffix(".db.token"))
        try:
            return _measure(size, jobs[-1], running)
        finally:
            running.end()


def _measure(size: Size, job: dict[str, Any], running: Running) -> Result:
    violations: list[str] = []
    first = _phase(running, running.start)
    running.end()
    again = _phase(running, running.start)
    if again.updates:
        violations.append(f"a controller that found everything there wrote {again.updates} updates")
    added = _phase(running, lambda: running.ask.put_job(job))

    if down := [" - ".join(it["ends"]) for it in running.ask.links() if not it["up"]]:
        violations.append(f"{len(down)} links that work were taken for down: {', '.join(down[:3])}")
    leaves = range(0, size.leaves, -(-size.leaves // _LINKS))
    links_down = [_fail(running, leaf * size.spines) for leaf in leaves]  # each leaf's to the first spine
    cpu = running.cpu()
    time.sleep(_IDLE_SECONDS)
    idle = round((running.cpu() - cpu) / _IDLE_SECONDS, 3)
    entries = [sum(it["entries"].values()) for it in running.ask.status()["switches"]]
    assert running.process is not None
    held = memory(running.process.pid)
    figures = size.leaves + size.spines, size.hosts, size.jobs, sum(entries), max(entries)
    return Result(*figures, first, again, added, links_down, idle, held, violations)


def _fail(running: Running, link: int) -> LinkDown:
    """One link; the controller is asked as little as can be, as answers take its time."""
    assert running.process is not None
    running.process.rest()
    cpu, cut = running.cpu(), running.command(op="cut", link=link)["now"]
    running.process.wait_for("is down", _PATIENCE)
    known = time.monotonic() - cut
    deadline = time.monotonic() + _PATIENCE
    while not all(it["up_to_date"] for it in running.ask.status()["switches"]):
        if time.monotonic() > deadline:
            raise ExperimentError("the controller does not go around a link that has failed")
        time.sleep(_POLL_SECONDS)
    used, found = running.cpu() - cpu, running.command(op="writes")
    counts = [count for count in found["writes"].values() if count]
    return LinkDown(round(found["last"] - cut, 3), round(used, 3), sum(counts), len(counts), round(known, 3))


def table(results: Sequence[Result]) -> TextTable:
    """A row for each fabric."""
    columns = (
        "switches",
        "hosts",
        "jobs",
        "entries (most)",
        "first",
        "again",
        "a job",
        "a link: known, gone around (most)",
        "idle",
        "MB",
        "wrong",
    )

    def shown(phase: Phase) -> str:
        return f"{phase.seconds:.2f} ({phase.cpu_seconds:.2f}; {phase.updates:,} at {phase.switches})"

    def shown_links(downs: Sequence[LinkDown]) -> str:
        known, seconds = sorted(it.known for it in downs), sorted(it.seconds for it in downs)
        middle = statistics.median(known), statistics.median(seconds)
        return f"{middle[0]:.2f} ({known[-1]:.2f}), {middle[1]:.2f} ({seconds[-1]:.2f})"

    rows = [
        (
            *(f"{it:,}" for it in (result.switches, result.hosts, result.jobs)),
            f"{result.entries:,} ({result.most_entries:,})",
            *(shown(phase) for phase in (result.first, result.again, result.job_added)),
            shown_links(result.links_down),
            f"{result.idle:.0%}",
            f"{result.memory / 1e6:.0f}",
            "; ".join(result.violations) or "-",
        )
        for result in results
    ]
    return TextTable("Seconds (of them the controller's CPU; updates, at how many switches)", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status: 1 also if something happened that must not."""
    parser = benchmark.parser("controller.scale", __doc__, "--sizes 4x2x64x8", root=False)
    parser.add_argument(
        "--sizes",
        type=command_line.several(Size.of),
        default=_SIZES,
        metavar="A,B",
        help=f"of LEAVESxSPINESxHOSTSxJOBS (default: {','.join(map(str, _SIZES))})",
    )
    parser.add_argument(
        "--switches",
        choices=("simulated", REAL),
        default="simulated",
        help="gradlane-switch's own P4Runtime servers and data planes, in one process, or simulated ones (default)",
    )
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    results: list[Result] = []
    for size in options.sizes:
        console.print(f"{size.leaves + size.spines} switches, {size.hosts} hosts, {size.jobs} jobs", soft_wrap=True)
        with tempfile.TemporaryDirectory() as folder:
            results.append(measure(size, Path(folder), options.switches))
    settings = {"sizes": [str(size) for size in options.sizes], "switches": options.switches}
    present(console, options, "controller-scale.json", benchmark.document(settings, results), [table(results)])
    return int(any(result.violations for result in results))


if __name__ == "__main__":
    sys.exit(main())
