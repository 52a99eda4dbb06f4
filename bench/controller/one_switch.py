# SPDX-License-Identifier: Apache-2.0
"""What it takes to make one switch hold 10,000 entries, to find that it does, and to change one of them.

Of a simulated switch, which takes them at once, so that what is seen is the controller's part; of gradlane-switch's
P4Runtime server; and of BMv2, if it is there. CPU is this process's, which has the controller's part alone.
"""

import argparse
import asyncio
import shutil
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

import grpc
from finsy import Action, Match, P4IndirectAction, P4TableEntry, Switch, SwitchOptions

from bench.controller.simulated_switches import REAL
from bench.harness import benchmark
from bench.harness.worker import Worker
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, load
from gradlane_controller.policy import Entity
from gradlane_controller.session.arbitration import Arbitration
from gradlane_controller.session.bounds import bound
from gradlane_controller.session.convergence import Changes, converge
from gradlane_controller.session.writing import Refused
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_PATIENCE = 120.0
_BMV2 = "simple_switch_grpc"


Converging = Coroutine[Any, Any, tuple[Changes, list[Refused]]]


@dataclass(frozen=True)
class Result:
    """Seconds, and seconds of CPU: to write all, to find that nothing is to be done, and to change one."""

    target: str
    entries: int
    write: tuple[float, float]
    audit: tuple[float, float]
    change: tuple[float, float]


def entries(count: int, last: int = 1) -> list[Entity]:
    """Routes to that many hosts, by two groups; `last` is the group of the last one."""
    mac = "02:00:00:00:00:01"
    found: list[Entity] = [
        P4TableEntry(
            "next_hops",
            match=Match(group=group),
            action=P4IndirectAction([((1, group), Action("forward", port=group, next_hop=mac, own=mac))]),
        )
        for group in (1, 2)
    ]
    for number in range(routes := count - len(found)):
        group = last if number == routes - 1 else 1
        address = f"{IPv4Address('10.0.0.0') + number}/32"
        found.append(
            P4TableEntry("ipv4_routes", match=Match(destination=address), action=Action("set_next_hop", group=group))
        )
    return found


async def _measure(target: str, address: str, count: int) -> Result:
    pipeline = load(DEFAULT_FOLDER)
    options = SwitchOptions(p4info=pipeline.p4info, p4blob=pipeline.program)
    switch = Switch("s1", address, options)
    bound(switch, Arbitration(lambda: 1, lambda _: None))
    before, after = entries(count), entries(count, last=2)

    async def timed(
        what: Callable[[], Coroutine[Any, Any, tuple[Changes, list[Refused]]]], total: int
    ) -> tuple[float, float]:
        began, cpu = time.monotonic(), time.process_time()
        changes, refused = await what()
        took = round(time.monotonic() - began, 3), round(time.process_time() - cpu, 3)
        assert (changes.total, refused) == (total, []), (changes, refused[:3])
        return took

    async with switch:
        write = await timed(lambda: converge(switch, before), count)
        audit = await timed(lambda: converge(switch, before), 0)
        change = await timed(lambda: converge(switch, after, before), 1)
    return Result(target, count, write, audit, change)


def _running(target: str) -> tuple[AbstractContextManager[Worker], Callable[[Worker], str]]:
    if target == _BMV2:
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        argv = [_BMV2, "--no-p4", "--log-level", "off", "--device-id", "1", "--", "--grpc-server-addr", address]

        def listening(_: Worker) -> str:
            with grpc.insecure_channel(address) as channel:
                grpc.channel_ready_future(channel).result(_PATIENCE)
            return address

        return Worker(target, argv, asked=False), listening
    argv = [sys.executable, "-m", "bench.controller.simulated_switches", "1", "1", "1", target]
    return Worker(target, argv), lambda worker: f"127.0.0.1:{worker.hear(_PATIENCE).split()[1]}"


def table(results: Sequence[Result]) -> TextTable:
    """A row for each switch."""
    rows = [
        (it.target, f"{it.entries:,}", *(f"{wall:.2f} ({cpu:.2f})" for wall, cpu in (it.write, it.audit, it.change)))
        for it in results
    ]
    return TextTable(
        "Seconds (of them the controller's CPU)", ("switch", "entries", "all", "audit", "one changed"), rows
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status."""
    parser = benchmark.parser("controller.one_switch", __doc__, "--entries 10000", root=False)
    parser.add_argument("--entries", type=int, default=10_000, metavar="N", help="(default: %(default)s)")

    def run(options: argparse.Namespace) -> int:
        console = make_console(to_stderr=options.json)
        results: list[Result] = []
        for target in ("simulated", REAL, *([_BMV2] if shutil.which(_BMV2) else [])):
            with ExitStack() as stack:
                running, address = _running(target)
                worker = stack.enter_context(running)
                results.append(asyncio.run(_measure(target, address(worker), options.entries)))
        document = benchmark.document(benchmark.chosen(options, "entries"), results)
        present(console, options, "controller-one-switch.json", document, [table(results)])
        return 0

    return benchmark.run(parser, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
