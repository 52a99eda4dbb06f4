# SPDX-License-Identifier: Apache-2.0
"""Entry writes per second over gRPC while packets are forwarded, and how long packets wait because of them.

A stream of time-stamped packets passes the switch all the time, through the table that is written: first with nothing
else going on, then while entries are inserted, read, modified and deleted in batches. Reads keep the machine as busy
as writes do, and take no lock, so what they do to the stream is not the tables' doing. At the end a batch of 100,000
entries shows what memory that takes. The sender of the stream has real-time priority, as the switch's forwarding has.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from finsy.proto import p4r

from bench.harness import benchmark
from bench.harness.switches import Client, RunningSwitch
from bench.harness.wires import Wires, compiled
from bench.harness.worker import Worker
from bench.switch.table_cases import CASES, TABLES, distinct, entity, frame, random_key
from lab import command_line
from lab.command_line import names_of
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_SECONDS = 3.0  # of a phase without writes
_LARGE = 100_000
_TABLES = ("exact", "lpm_ipv4", "acl")


@dataclass(frozen=True)
class Result:
    """One phase. Times in us.

    `cpu`: the switch's CPU time per write, less what it takes without writes. `wait`: the longest time for which the
    switch says that forwarding waited for a change. `gap`: the longest between two packets of the stream. Delays are
    from the sender to the receiver's interface.
    """

    table: str
    phase: str
    writes_per_second: int
    cpu: float
    wait: float
    gap: float
    delay_p50: float
    delay_p999: float
    delay_max: float
    sent: int
    lost: int


@dataclass(frozen=True)
class Memory:
    """A batch of so many entries: resident memory of the switch in MB before, at most during, and after it."""

    entries: int
    before: float
    peak: float
    after: float
    seconds: float


class Stream:
    """The packets whose delays tell of stalls."""

    def __init__(self, wires: Wires, probe: Path, rate: int, data: bytes) -> None:
        self._command = ["ip", "netns", "exec", wires.hosts, "chrt", "--rr", "1", str(probe), "host-1", "host-2"]
        self._command += [str(rate), data.hex()]

    @contextmanager
    def running(self, figures: list[int]) -> Generator[None, None, None]:
        """Puts what the probe says at its end into `figures`. Raises ProcessError."""
        with Worker("the probe", self._command, asked=False) as probe:
            probe.wait_for("ready")
            yield
            probe.end()
            figures.extend(map(int, probe.hear(10).split()))


def batches(client: Client, kind: int, entities: Sequence[Any], size: int, atomicity: Any) -> list[bytes]:
    """Write requests, serialized before the clock starts: the switch is to be timed, not a client that serializes."""
    found: list[bytes] = []
    for start in range(0, len(entities), size):
        request = p4r.WriteRequest(**client.identity, atomicity=atomicity)
        for item in entities[start : start + size]:
            request.updates.add(type=kind, entity=item)
        found.append(request.SerializeToString())
    return found


def write(client: Client, requests: Sequence[bytes]) -> float:
    """Sends requests, one after the other. Returns seconds. Raises ControlError."""
    began = time.monotonic()
    client.write_serialized(requests)
    return time.monotonic() - began


def read_all(client: Client, seconds: float) -> None:
    """Reads all table entries, again and again. Raises ControlError."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        client.read(p4r.Entity(table_entry=p4r.TableEntry()))


def _resident(pid: int, key: str) -> float:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(key)]
    return int(line.split()[1]) / 1024


def measure(
    wires: Wires, probe: Path, name: str, options: argparse.Namespace, say: Callable[[Result], None]
) -> tuple[list[Result], Memory | None]:
    """Every phase of one table, and for exact entries the large batch. Raises ExperimentError."""
    case, random, results = CASES[name], Random(options.seed), list[Result]()
    atomicity = p4r.WriteRequest.Atomicity.Value(f"{options.atomicity.upper()}_ON_ERROR")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports = (f"{case.port}@switch-1", "2@switch-2,buffer=8MB")
        switch = stack.enter_context(RunningSwitch(wires, folder, ports, pipeline=TABLES))
        client = stack.enter_context(Client(switch.address))
        stream = Stream(wires, probe, options.rate, frame(case, random_key(random)) + bytes(8))
        ids = TABLES.ids()
        wanted = distinct(case, _LARGE if name == "exact" else options.entries, random)
        entities = [entity(ids, case, entry, number) for number, entry in enumerate(wanted, 1)]

        idle = 0.0  # the share of a core that the stream takes

        def phase(kind: str, requests: list[bytes], count: int) -> None:
            nonlocal idle
            switch.request(op="clear")
            figures: list[int] = []
            spent, began = switch.cpu_seconds(), time.monotonic()
            with stream.running(figures):
                if requests:
                    rate = round(count / write(client, requests))
                else:
                    rate = 0
                    if kind == "reads":
                        read_all(client, _SECONDS)
                    else:
                        time.sleep(_SECONDS)
            wait = switch.request(op="forwarding")["forwarding"]["longest_wait_ns"]
            spent, took = switch.cpu_seconds() - spent, time.monotonic() - began
            if kind == "no writes":
                idle = spent / took
            cpu = round((spent - idle * took) / count * 1e6, 1) if count else 0.0
            sent, received, gap, longest, p50, _, p999 = figures
            wait, gap, p50, p999, longest = (round(value / 1000, 1) for value in (wait, gap, p50, p999, longest))
            results.append(Result(name, kind, rate, cpu, wait, gap, p50, p999, longest, sent, sent - received))
            say(results[-1])

        phase("no writes", [], 0)
        for kind in ("INSERT", "MODIFY", "DELETE"):
            chosen = entities[: options.entries]
            requests = batches(client, p4r.Update.Type.Value(kind), chosen, options.batch, atomicity)
            phase(kind, requests, len(chosen))
            if kind == "INSERT":
                phase("reads", [], 0)
        return results, _large(client, switch.pid, entities, atomicity) if name == "exact" else None


def _large(client: Client, pid: int, entities: Sequence[Any], atomicity: Any) -> Memory:
    [request] = batches(client, p4r.Update.INSERT, entities, _LARGE, atomicity)
    before = _resident(pid, "VmRSS")
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from now on
    seconds = write(client, [request])
    figures = (before, _resident(pid, "VmHWM"), _resident(pid, "VmRSS"), seconds)
    return Memory(_LARGE, *(round(value, 1) for value in figures))


def tables(results: Sequence[Result], memory: Memory | None) -> list[TextTable]:
    """A row for each phase; and the large batch."""
    rows = [
        [
            item.table,
            item.phase,
            f"{item.writes_per_second:,}" if item.writes_per_second else "-",
            f"{item.cpu:.1f}" if item.cpu else "-",
            *(f"{v:,.1f}" for v in (item.wait, item.gap, item.delay_p50, item.delay_p999, item.delay_max)),
            f"{item.lost:,}",
        ]
        for item in results
    ]
    columns = ("table", "phase", "writes/s", "CPU per write", "longest wait", "longest gap")
    delays = ("delay p50", "p99.9", "longest", "lost")
    found = [TextTable("Writes while packets are forwarded; times in us", (*columns, *delays), rows)]
    if memory is not None:
        row = [f"{memory.entries:,}", *(f"{v}" for v in (memory.seconds, memory.before, memory.peak, memory.after))]
        columns = ("entries", "seconds", "before, MB", "at most, MB", "after, MB")
        found.append(TextTable("One batch, and the switch's resident memory", columns, [row]))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser(
        "switch.control_plane",
        __doc__,
        "--tables exact --batch 200 --atomicity rollback --json > control_plane.json",
    )
    add = parser.add_argument
    known = f"of {', '.join(_TABLES)} (default: all)"
    add("--tables", type=names_of(_TABLES, "table"), default=_TABLES, metavar="A,B", help=known)
    add("--entries", type=int, default=10_000, metavar="N", help="of each phase (default: %(default)s)")
    add("--batch", type=int, default=500, metavar="N", help="entries in a request (default: %(default)s)")
    add("--rate", type=int, default=20_000, metavar="N", help="packets/s of the stream (default: %(default)s)")
    atomicities = ("continue", "rollback")
    add("--atomicity", choices=atomicities, default="continue", help="on an error (default: %(default)s)")
    add("--seed", type=command_line.seed, default=1, metavar="N", help="(default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    results: list[Result] = []
    memory: Memory | None = None

    def say(item: Result) -> None:
        figures = f"longest wait {item.wait} us, longest delay {item.delay_max} us, {item.lost} lost"
        writes = f"{item.writes_per_second:,} writes/s, " if item.writes_per_second else ""
        console.print(f"{item.table}, {item.phase}: {writes}{figures}", soft_wrap=True)

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wires = stack.enter_context(Wires(2))
        probe = compiled(Path(__file__).with_name("probe.c"), folder)
        for name in options.tables:
            found, large = measure(wires, probe, name, options, say)
            results += found
            memory = large or memory
    settings = benchmark.chosen(options, "tables", "entries", "batch", "rate", "atomicity", "seed")
    settings["memory"] = None if memory is None else asdict(memory)
    document = benchmark.document(settings, results)
    present(console, options, "control_plane.json", document, tables(results, memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
