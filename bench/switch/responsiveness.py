# SPDX-License-Identifier: Apache-2.0
"""How long one-entry reads and writes take while hosts flood the switch, and while other clients read everything.

All ports get frames of 84 bytes as fast as one process can send them: such that the program punts, gradients that it
refuses, of one job or of many (each is a digest), and all of that at once. The controller takes what it is told and
acknowledges it. The senders give way to the switch and its clients somewhat, because hosts would be other machines.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from finsy.proto import p4r

from bench.harness import benchmark
from bench.harness.switches import GRADLANE, Client, Entries, RunningSwitch
from bench.harness.wires import HEADERS, SENDER_MAC, Wires, compiled, frame
from bench.harness.worker import Worker
from gradlane import wire
from lab.model.errors import ExperimentError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_CPU_PORT = 255  # the program's
_PORTS = 4
_FRAME = 84  # bytes
_READERS = 10
_GIVE_WAY = "5"  # as nice has it
_PUNTS = "punts"
_BEGIN_SECONDS = 20  # until a load must have begun
_VIOLATION = p4r.DigestEntry.Config(max_list_size=64, max_timeout_ns=100_000_000, ack_timeout_ns=1_000_000_000)
_UDP_PORTS = slice(HEADERS - 8, HEADERS - 4)


@dataclass(frozen=True)
class Result:
    """One kind of request under one load; times in ms.

    `packets_per_second`: that came in at all ports. `told`: packets, and `values` of digests, that the controller got
    in a second. `p50`, `p99`, `longest`: of the answers.
    """

    load: str
    request: str
    packets_per_second: int
    told: int
    values: int
    answers: int
    p50: float
    p99: float
    longest: float


def floods() -> dict[str, tuple[bytes, int]]:
    """A frame for each load, and the place of the 16 bits in it that differ; -1: none do."""
    gradient = bytearray.fromhex(frame("10.0.2.2", _FRAME - HEADERS))
    gradient[_UDP_PORTS] = wire.UDP_PORT.to_bytes(2, "big") * 2
    payload = _FRAME - HEADERS - wire.HEADER_BYTES
    header = wire.Header(kind=wire.Kind.DATA, job=1, source=0, message=0, token=0, length=payload)
    refused = bytes(gradient[:HEADERS]) + header.pack() + bytes(payload)
    arp = (b"\xff" * 6 + SENDER_MAC + b"\x08\x06").ljust(_FRAME, b"\0")
    return {_PUNTS: (arp, -1), "refused, one job": (refused, -1), "refused, many jobs": (refused, _job())}


def _job() -> int:
    position = 0
    for name, bits in wire.FIELDS:
        if name == "job":
            return HEADERS + position // 8
        position += bits
    raise AssertionError("the header has a job")


class Setup:
    """A switch with entries, its controller, and what loads it. Use as a context manager. Raises ExperimentError."""

    def __init__(self, entries: int, seconds: float) -> None:
        self._entries, self._seconds = entries, seconds
        self._stack = ExitStack()
        self.told: Counter[str] = Counter()

    def __enter__(self) -> Setup:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._wires = stack.enter_context(Wires(_PORTS))
            self._sender = compiled(Path(__file__).with_name("switch_load.c"), folder)
            ports = [f"{number}@switch-{number}" for number in range(1, _PORTS + 1)]
            flags = ("--cpu-port", str(_CPU_PORT))
            self._switch = stack.enter_context(RunningSwitch(self._wires, folder, ports, flags=flags))
            self._client = stack.enter_context(Client(self._switch.address))
            made = Entries()
            [digest] = GRADLANE.info().digests
            wanted = p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=digest.preamble.id, config=_VIOLATION))
            senders = made.senders(range(1, _PORTS + 1))
            self._client.write(p4r.Update.INSERT, [wanted, *senders, *made.next_hops([2])])
            routes = [made.route(bytes([11, *n.to_bytes(2, "big"), 0]), 24, 2) for n in range(self._entries)]
            self._client.write(p4r.Update.INSERT, routes)
            self._route = routes[len(routes) // 2]
            self._client.listen(self.told)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def flooded(self, *names: str) -> Generator[None, None, None]:
        """A sender to all ports for each load; what it sends has begun to reach the controller."""
        hosts = [f"host-{number}" for number in range(1, _PORTS + 1)]
        words = ["ip", "netns", "exec", self._wires.hosts, "nice", "-n", _GIVE_WAY, str(self._sender), "flood"]
        with ExitStack() as stack:
            before, known = self.told.copy(), floods()
            for content, offset in (known[name] for name in names):
                command = [*words, str(offset), content.hex(), *hosts]
                stack.enter_context(Worker("the sender", command, asked=False))
            self._wait_for({"packet" if name == _PUNTS else "values" for name in names}, before)
            yield

    def _wait_for(self, kinds: set[str], before: Counter[str]) -> None:
        deadline = time.monotonic() + _BEGIN_SECONDS
        while missing := {kind for kind in kinds if self.told[kind] == before[kind]}:
            if time.monotonic() > deadline:
                raise ExperimentError(f"in {_BEGIN_SECONDS} s the controller was told no {' and no '.join(missing)}")
            time.sleep(0.01)

    @contextmanager
    def read_by_others(self) -> Generator[None, None, None]:
        """Ten clients read all entries."""
        command = [sys.executable, "-m", "bench.switch.wildcards", self._switch.address, str(_READERS)]
        with Worker("the readers", command) as readers:
            readers.wait_for()
            yield

    def requests(self, load: str) -> list[Result]:
        """The times of reads, and then of writes."""
        wanted = p4r.Entity(table_entry=p4r.TableEntry(table_id=self._route.table_entry.table_id))
        wanted.table_entry.match.extend(self._route.table_entry.match)
        reads = self._times(load, "read", lambda: self._client.read(wanted))
        return [reads, self._times(load, "write", lambda: self._client.write(p4r.Update.MODIFY, [self._route]))]

    def _times(self, load: str, request: str, ask: Callable[[], Any]) -> Result:
        before, received, began = self.told.copy(), self._received(), time.monotonic()
        times: list[float] = []
        while (asked := time.monotonic()) < began + self._seconds or not times:
            ask()
            times.append(time.monotonic() - asked)
        took = time.monotonic() - began
        told = self.told - before
        counts = (self._received() - received, told["packet"], told["values"])
        times.sort()
        came, packets, values = (round(count / took) for count in counts)
        shown = (times[len(times) // 2], times[int(len(times) * 0.99)], times[-1])
        median, most, longest = (round(seconds * 1000, 1) for seconds in shown)
        return Result(load, request, came, packets, values, len(times), median, most, longest)

    def _received(self) -> int:
        return sum(port["rx"]["packets"] + port["socket_drops"] for port in self._switch.request(op="ports")["ports"])


def tables(results: Sequence[Result]) -> list[TextTable]:
    """A row for each kind of request under each load."""
    rows = [
        [
            item.load,
            item.request,
            *(f"{count:,}" if count else "-" for count in (item.packets_per_second, item.told, item.values)),
            *(f"{value:,.1f}" for value in (item.p50, item.p99, item.longest)),
        ]
        for item in results
    ]
    columns = ("load", "request", "packets/s", "packet-ins/s", "digests/s", "p50, ms", "p99, ms", "longest, ms")
    return [TextTable("Answers to one-entry requests", columns, rows)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser(
        "switch.responsiveness", __doc__, "--seconds 10 --entries 1000 --json > responsiveness.json"
    )
    add = parser.add_argument
    add("--seconds", type=float, default=4.0, metavar="S", help="of each kind of request (default: %(default)s)")
    add("--entries", type=int, default=4000, metavar="N", help="that the readers read (default: %(default)s)")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    results: list[Result] = []

    def take(found: list[Result]) -> None:
        results.extend(found)
        for item in found:
            text = f"{item.load}, {item.request}: p50 {item.p50} ms, p99 {item.p99} ms, longest {item.longest} ms"
            console.print(text, soft_wrap=True)

    with Setup(options.entries, options.seconds) as setup:
        take(setup.requests("idle"))
        for name in floods():
            with setup.flooded(name):
                take(setup.requests(name))
        with setup.flooded(*floods()):
            take(setup.requests("all of these"))
        with setup.read_by_others():
            take(setup.requests(f"{_READERS} wildcard reads"))
    document = benchmark.document(benchmark.chosen(options, "seconds", "entries"), results)
    present(console, options, "responsiveness.json", document, tables(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
