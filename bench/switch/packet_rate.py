# SPDX-License-Identifier: Apache-2.0
"""Packets per second of gradlane-switch, of BMv2, and of loops that only copy: side by side, alternately, one core.

Each target forwards between two veth links. The sender runs on a core of its own and the receiver drops at its
interface. A target's capacity is the highest rate that it forwards with at most 0.1 % lost, found by bisection.
Latency is from before the sender's system call to the receiver's interface, at 5,000 packets/s.

Targets: gradlane; offload (the same, from a host that leaves segmentation to hardware: 40 datagrams in a frame); bmv2;
and copy, copy-rings and copy-xdp: loops over the switch's own kind of sockets, over TPACKET_V3, and over AF_XDP.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median_high
from typing import Any

from finsy.proto import p4r
from google.protobuf import text_format

from bench.harness import benchmark
from bench.harness.switches import GRADLANE, Entries, RunningSwitch
from bench.harness.wires import HEADERS, Wires, compiled, frame
from bench.harness.worker import Worker
from bench.switch import bmv2
from bench.switch.profiling import perf, profile
from lab.command_line import names_of, several
from lab.model.errors import ExperimentError, PreconditionError
from lab.report.console import make_console, present
from lab.report.tables import TextTable

COPIES = {"copy": "sockets", "copy-rings": "rings", "copy-xdp": "xdp"}
TARGETS = ("gradlane", "offload", "bmv2", *COPIES)
LOSS = 0.001
_SECONDS = 1.0  # of a trial
_STEPS = 8  # of a bisection
_MOST = 1_200_000  # packets/s; more than a copy loop does
_MOST_OFFLOAD = 8_000_000
_TRAIN = 40  # datagrams in a frame
_PROBE_RATE, _PROBE_SECONDS, _PROBE_LOSS = 5_000, 2.0, 0.01
_SETTLE_SECONDS = 0.3
_TARGETS_HELP = f"of {', '.join(TARGETS)}; in turn (default: all)"
_SWITCH_CORE, _SENDER_CORE = 0, 1


@dataclass(frozen=True)
class Result:
    """One bisection: datagrams of `size` bytes, packets/s without loss, CPU time of the target in us per packet.

    `at_least`: the sender could not send faster, so the target may be faster too. Latencies in us; 0: not measured.
    """

    target: str
    size: int
    round: int
    packets_per_second: int
    cpu_us: float
    at_least: bool
    p50_us: float
    p99_us: float


class Network(Wires):
    """Link 1 from the sender to the switch, link 2 from there to the receiver."""

    def __init__(self) -> None:
        super().__init__(2)

    def offload(self, state: str) -> None:
        """Turns the segmentation by hardware on or off, at the sender and at the port that the switch sends from."""
        words = [word for what in ("tx", "sg", "tso", "gso", "tx-udp-segmentation") for word in (what, state)]
        for namespace, interface in ((self.hosts, "host-1"), (self.switch, "switch-2")):
            self.run(namespace, "ethtool", "-K", interface, *words)

    def received(self, size: int) -> int:
        """Datagrams of `size` bytes that have arrived at the receiver's interface, alone or many in a frame."""
        folder = "/sys/class/net/host-2/statistics"
        packets, octets = map(int, self.run(self.hosts, "cat", f"{folder}/rx_packets", f"{folder}/rx_bytes").split())
        return (octets - packets * HEADERS) // size


@contextmanager
def target(name: str, network: Network, folder: Path) -> Generator[Worker, None, None]:
    """Runs a target on the switch's core. Raises ExperimentError."""
    pinned = ("taskset", "-c", str(_SWITCH_CORE))
    if name in ("gradlane", "offload"):
        entries = folder / "entries.txtpb"
        entries.write_text(text_format.MessageToString(p4r.WriteRequest(updates=_route())))
        ports = ("1@switch-1", "2@switch-2,buffer=8MB")
        with RunningSwitch(network, folder, ports, before=pinned, flags=("--entries", str(entries))) as switch:
            yield switch
        return
    # gradlane-switch forwards with real-time priority, so the others get it as well.
    pinned = ("chrt", "--rr", "1", *pinned)
    if name == "bmv2":
        with bmv2.running(network, folder, 2, GRADLANE, _route(), pinned) as switch:
            yield switch
        return
    command = [f"{folder}/switch_copy", COPIES[name], "switch-1", "switch-2"]
    with Worker(name, ["ip", "netns", "exec", network.switch, *pinned, *command], asked=False, logs=True) as process:
        process.wait_for("ready")
        yield process


def _route() -> list[Any]:
    """A route of 10.0.2.0/24 through port 2, as p4.v1.Update messages."""
    entries = Entries()
    entities = [*entries.senders([1]), *entries.next_hops([2]), entries.route(bytes([10, 0, 2, 0]), 24, 2)]
    return [p4r.Update(type=p4r.Update.INSERT, entity=entity) for entity in entities]


@dataclass(frozen=True)
class Load:
    """What is sent: datagrams of `size` bytes, `train` of them in a frame."""

    network: Network
    program: Path
    size: int
    train: int

    def trial(self, process: Worker, rate: int) -> tuple[int, int, float]:
        """Datagrams sent at a rate, datagrams received, and CPU time of the target in s."""
        before, cpu = self.network.received(self.size), process.cpu_seconds()
        sent = int(self._run("send", "host-1", str(rate), str(_SECONDS), str(self.train), frame("10.0.2.2", self.size)))
        time.sleep(_SETTLE_SECONDS)
        return sent, self.network.received(self.size) - before, process.cpu_seconds() - cpu

    def capacity(self, process: Worker) -> tuple[int, float, bool]:
        """The highest rate in packets/s that the target forwards, its CPU time in us per packet, and whether that is
        the sender's limit."""
        low, high, cost = 0, _MOST_OFFLOAD if self.train > 1 else _MOST, 0.0
        self.trial(process, 10_000)
        for _ in range(_STEPS):
            rate = (low + high) // 2
            began = time.monotonic()
            sent, received, cpu = self.trial(process, rate)
            took = time.monotonic() - began - _SETTLE_SECONDS
            if received >= sent * (1 - LOSS):
                # A sender that can't keep the rate up is the limit.
                low, cost = min(rate, round(sent / took)), cpu / max(received, 1) * 1e6
                if took > 1.2 * _SECONDS:
                    return low, cost, True
            else:
                high = rate
        return low, cost, False

    def latency(self) -> tuple[float, float]:
        """Median and 99th percentile in us. Raises ExperimentError if packets are lost."""
        words = ("probe", "host-1", "host-2", str(_PROBE_RATE), str(_PROBE_SECONDS), frame("10.0.2.2", self.size))
        found = sorted(int(line) / 1e3 for line in self._run(*words).split())
        if len(found) < _PROBE_RATE * _PROBE_SECONDS * (1 - _PROBE_LOSS):
            raise ExperimentError(f"{len(found)} of {_PROBE_RATE * _PROBE_SECONDS:.0f} packets arrived at a low rate")
        return found[len(found) // 2], found[len(found) * 99 // 100]

    def _run(self, *words: str) -> str:
        return self.network.run(self.network.hosts, "taskset", "-c", str(_SENDER_CORE), str(self.program), *words)


def measure(options: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> list[Result]:
    """Every target at every size, in turn, `rounds` times. Raises ExperimentError."""
    results: list[Result] = []
    for name in ("switch_load", "switch_copy"):
        compiled(Path(__file__).with_name(f"{name}.c"), folder)
    with Network() as network:
        for number in range(options.rounds):
            for size in options.sizes:
                for name in options.targets:
                    train = max(1, min(_TRAIN, 60_000 // size)) if name == "offload" else 1
                    load = Load(network, folder / "switch_load", size, train)
                    network.offload("on" if train > 1 else "off")
                    with target(name, network, folder) as process:
                        rate, cost, at_least = load.capacity(process)
                        p50, p99 = (0.0, 0.0) if train > 1 else load.latency()
                        if options.profile:
                            say(profile(partial(load.trial, process, rate), process, folder))
                    results.append(Result(name, size, number, rate, round(cost, 2), at_least, p50, p99))
                    say(_line(results[-1]))
    return results


def _line(item: Result) -> str:
    limit = "  (the sender's limit)" if item.at_least else ""
    cost = f"{item.packets_per_second:9,} packets/s {item.cpu_us:6.2f} us CPU"
    latency = f"  latency {item.p50_us:.0f} us, p99 {item.p99_us:.0f} us" if item.p50_us else ""
    return f"round {item.round + 1}  {item.target:10} {item.size:5} B {cost}{latency}{limit}"


def table(results: Sequence[Result]) -> TextTable:
    """Medians over the rounds, and their ratios to the copy loop's and to BMv2's."""
    rows: list[list[str]] = []
    for size in sorted({item.size for item in results}):
        same = [item for item in results if item.size == size]
        targets = dict.fromkeys(item.target for item in same)
        rates = {
            name: median_high([item.packets_per_second for item in same if item.target == name]) for name in targets
        }
        for name, rate in rates.items():
            mine = [item for item in same if item.target == name]
            p50, p99 = (median_high([getattr(item, key) for item in mine]) for key in ("p50_us", "p99_us"))
            rows.append(
                [
                    name,
                    f"{size}",
                    (">= " if any(item.at_least for item in mine) else "") + f"{rate:,}",
                    f"{median_high([item.cpu_us for item in mine]):.2f}",
                    f"{rate / rates['copy']:.0%}" if rates.get("copy") else "-",
                    f"{rate / rates['bmv2']:.1f}x" if rates.get("bmv2") else "-",
                    f"{p50:.0f}" if p50 else "-",
                    f"{p99:.0f}" if p50 else "-",
                ]
            )
    columns = ("target", "payload, bytes", "packets/s", "CPU, us", "of copy", "of BMv2", "latency p50, us", "p99, us")
    return TextTable("Forwarding without loss, on one core (>=: the sender was the limit)", columns, rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    profiled = "--targets gradlane --rounds 1 --profile  # with perf: where the time goes"
    parser = benchmark.parser(
        "switch.packet_rate", __doc__, "--targets gradlane,copy --sizes 64 --rounds 5 --json > switch.json", profiled
    )
    add = parser.add_argument
    add("--targets", type=names_of(TARGETS, "target"), default=TARGETS, metavar="A,B", help=_TARGETS_HELP)
    add("--sizes", type=several(int), default=(64, 1448), metavar="A,B", help="of the UDP payload (default: 64,1448)")
    add("--rounds", type=int, default=3, metavar="N", help="(default: %(default)s)")
    add("--profile", action="store_true", help="a profile by perf of each target, at its capacity")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    if (os.cpu_count() or 1) < 2:
        raise PreconditionError("it needs two cores: one for the switch, one for the sender")
    if options.profile:
        perf()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(options, Path(folder), lambda text: console.print(text, soft_wrap=True))
    settings = benchmark.chosen(options, "targets", "sizes", "rounds")
    present(console, options, "switch.json", benchmark.document(settings, results), [table(results)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
