# SPDX-License-Identifier: Apache-2.0
"""Who gets how much of one port of limited rate: two jobs, of the same hosts or of others, and a job beside TCP.

Hosts are namespaces on two sides of a router, whose port all must pass; no switch program and no classes, so all is
best effort. A job is 2 hosts that all-reduce without a pause; a TCP flow is a socket that sends without end. Counted is
payload that arrived on the far side.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bench.harness import benchmark
from bench.harness.dumbbell import Dumbbell
from bench.harness.figure import panels
from bench.transport.fairness_flows import Flow, Running
from gradlane.units import checked, parse_rate, parse_size
from lab.model.errors import UsageError
from lab.report.console import make_console, present
from lab.report.tables import TextTable
from lab.training.sockets import AVAILABLE

_SETTLING = 3.0  # seconds that flows have before the first window
CASES: dict[str, tuple[Flow, ...]] = {
    "jobs of the same hosts": (Flow(0, 0.1), Flow(0, 0.1)),
    "jobs of different hosts": (Flow(0, 0.1), Flow(1, 0.1)),
    "jobs that tolerate nothing, of different hosts": (Flow(0, 0.0), Flow(1, 0.0)),
    "job alone": (Flow(0, 0.1),),
    "tcp alone": (Flow(1),),
    "tcp beside tcp": (Flow(0), Flow(1)),
    "tcp beside a job": (Flow(0, 0.1), Flow(1)),
    "tcp beside a job that tolerates nothing": (Flow(0, 0.0), Flow(1)),
}


@dataclass(frozen=True)
class Result:
    """One start of a case: each flow's goodput in each window, bit/s; Jain's index and least to most of their means."""

    case: str
    flows: list[str]
    goodput: list[list[float]]
    jain: float
    ratio: float


def jain(values: Sequence[float]) -> float:
    """Jain's fairness index (DEC TR-301, 1984): 1 if all are equal, 1/n if one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def in_windows(samples: Sequence[tuple[float, int]], begin: float, seconds: float, count: int) -> list[float]:
    """bit/s in each window from the arrivals of a flow, (seconds of the clock, bytes)."""
    octets = [0] * count
    for at, size in samples:
        window = int((at - begin) // seconds)
        if 0 <= window < count:
            octets[window] += size
    return [8 * value / seconds for value in octets]


def measure(network: Dumbbell, case: str, options: argparse.Namespace) -> Result:
    """One case. Raises ExperimentError."""
    flows = CASES[case]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        running = Running(network, options.tcp, Path(folder), stack)
        receivers = [running.flow(number, flow) for number, flow in enumerate(flows)]
        for receiver in receivers:
            receiver.wait_for("ready")
        begin = time.monotonic() + _SETTLING
        while (left := begin + options.windows * options.seconds - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            running.check()
        samples = [[json.loads(line) for line in receiver.rest()] for receiver in receivers]
    goodput = [in_windows(sample, begin, options.seconds, options.windows) for sample in samples]
    means = [fmean(values) for values in goodput]
    return Result(case, [flow.name for flow in flows], goodput, jain(means), min(means) / max(*means, 1.0))


def table(results: Sequence[Result], rate: int) -> TextTable:
    """A row for each flow of each case, over all starts."""
    rows: list[list[str]] = []
    for case in dict.fromkeys(result.case for result in results):
        same = [result for result in results if result.case == case]
        for number, name in enumerate(same[0].flows):
            values = [value for result in same for value in result.goodput[number]]
            shown = [f"{value / 1e6:.1f}" for value in (fmean(values), min(values), max(values))]
            row = ["" if number else case, name, shown[0], f"{shown[1]} - {shown[2]}", f"{fmean(values) / rate:.1%}"]
            if number or len(same[0].flows) == 1:
                rows.append([*row, "", ""])
            else:
                ratios = " ".join(f"{result.ratio:.2f}" for result in same)
                rows.append([*row, ratios, f"{fmean(result.jain for result in same):.3f}"])
    columns = ["case", "flow", "Mbit/s", "windows", "of the port", "least / most of each start", "Jain"]
    return TextTable(f"Goodput at one port of {rate / 1e6:g} Mbit/s", columns, rows)


def plot(results: Sequence[Result], seconds: float, path: Path) -> None:
    """Each case's flows over the windows of all its starts."""
    cases = list(dict.fromkeys(result.case for result in results))
    with panels(path, 1, len(cases), (2.6, 3), share_y=True) as axes:
        for axis, case in zip(axes[0], cases, strict=True):
            same = [result for result in results if result.case == case]
            for number, name in enumerate(same[0].flows):
                values = [value / 1e6 for result in same for value in result.goodput[number]]
                axis.plot([seconds * (k + 1) for k in range(len(values))], values, ".-", label=name)
            axis.set_title(case.replace(", ", ",\n").replace(" that", "\nthat"), fontsize=8)
            axis.set(xlabel="s, all starts", ylim=(0, None))
            axis.legend(fontsize=7)
        axes[0][0].set_ylabel("Mbit/s")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser(
        "transport.fairness",
        __doc__,
        "--rate 50mbit --buffer 64kB --windows 3 --seconds 5 --json > fairness.json",
        "--tcp bbr --only tcp",
    )
    add = parser.add_argument
    add("--rate", type=checked(parse_rate), default="100mbit", metavar="R", help="of the port (default: 100mbit)")
    add("--buffer", type=checked(parse_size), default="128kB", metavar="B", help="of the port (default: 128kB)")
    controls = AVAILABLE.read_text(encoding="ascii").split()
    add("--tcp", default="cubic", choices=controls, help="TCP's congestion control (default: %(default)s)")
    add("--starts", type=int, default=3, metavar="N", help="of each case, all cases in turn (default: 3)")
    add("--windows", type=int, default=2, metavar="N", help="of each start (default: 2)")
    add("--seconds", type=float, default=3.0, metavar="S", help="of each window (default: 3)")
    add("--only", default="", metavar="TEXT", help="the cases with this in their names")
    return benchmark.run(parser, _run, arguments)


def _run(options: argparse.Namespace) -> int:
    console = make_console(to_stderr=options.json)
    cases = [case for case in CASES if options.only in case]
    if not cases:
        raise UsageError(f"no case has {options.only!r} in its name; there are: {'; '.join(CASES)}")
    benchmark.take_priority()
    results: list[Result] = []
    for number in range(options.starts * len(cases)):
        with Dumbbell(2, options.rate, options.buffer) as network:
            results.append(measure(network, cases[number % len(cases)], options))
        means = ", ".join(f"{fmean(values) / 1e6:.1f}" for values in results[-1].goodput)
        text = f"{number + 1}/{options.starts * len(cases)} {results[-1].case}: {means} Mbit/s"
        console.print(text, soft_wrap=True)
    settings = benchmark.chosen(options, "rate", "buffer", "tcp", "starts", "windows", "seconds")
    document, figure = benchmark.document(settings, results), options.out / "fairness.svg"
    plot(results, options.seconds, figure)
    present(console, options, "fairness.json", document, [table(results, options.rate)], plot=figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
