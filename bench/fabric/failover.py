# SPDX-License-Identifier: Apache-2.0
"""How long silent failures take until all traffic goes around them: no port loses its carrier, and nothing is said.

A leaf-spine of gradlane-switch, with or without training. One after the other a link loses everything in one direction
or in both, and a spine's process is stopped or killed; each is taken back before the next. The time goes from the
failure to the moment at which the controller knows it and each switch that lives has been written: it is asked every
few milliseconds. Between failures, and while a link loses a part of its frames, no link may be taken for down.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Any

from bench.fabric.soak import Job
from bench.harness import benchmark
from gradlane.units import checked, parse_rate
from lab.experiment.runner import ready_machine
from lab.model.errors import ExperimentError
from lab.model.plan import FabricPlan, LinkEnd
from lab.model.topology import Topology
from lab.net.control import ask_switch
from lab.report.console import make_console, present
from lab.report.tables import TextTable

_BUFFER = 64_000
_PATIENCE = 30.0
_POLL_SECONDS = 0.004
_LOSSES = (0.01, 0.1)
_SECONDS_WITH_LOSS = 20.0


@dataclass(frozen=True)
class Failure:
    """What happens, what takes it back, the links that are to be down, and who is not there then."""

    happen: Callable[[], None]
    mend: Callable[[], None]
    links: Collection[str]
    dead: Collection[str] = ()


@dataclass(frozen=True)
class Result:
    """Of one kind of failure, in seconds, in order; or (`loss`) of a time in which none was to be found."""

    kind: str
    seconds: list[float]
    flaps: int


def _name(link: Sequence[LinkEnd]) -> str:
    return " - ".join(map(str, link))


def _failures(network: Any, random: Random) -> dict[str, Callable[[], Failure]]:
    links: Sequence[tuple[LinkEnd, LinkEnd]] = network.plan.links

    def lose(ends: Collection[LinkEnd], loss: float) -> None:
        for end in ends:
            ask_switch(network.admins()[end.switch], {"op": "set", "port": end.port, "loss": loss})

    def cut(choose: Callable[[tuple[LinkEnd, LinkEnd]], Collection[LinkEnd]]) -> Failure:
        link = random.choice(links)
        ends = choose(link)
        return Failure(lambda: lose(ends, 1.0), lambda: lose(ends, 0.0), {_name(link)})

    def dead(happen: Callable[[], None], mend: Callable[[], None]) -> Failure:
        return Failure(
            happen, mend, {_name(link) for link in links if "spine2" in (it.switch for it in link)}, ["spine2"]
        )

    def signalled(which: signal.Signals) -> Callable[[], None]:
        def send() -> None:
            [child] = [it for it in network.supervisor.children if it.name == "switch spine2"]
            child.signal_group(which)

        return send

    return {
        "up to a spine": lambda: cut(lambda link: [end for end in link if end.switch.startswith("leaf")]),
        "down to a leaf": lambda: cut(lambda link: [end for end in link if end.switch.startswith("spine")]),
        "both directions": lambda: cut(lambda link: link),
        "stopped": lambda: dead(signalled(signal.SIGSTOP), signalled(signal.SIGCONT)),
        "killed": lambda: dead(
            lambda: network.fail_switch("spine2", links=False), lambda: network.restore_switch("spine2")
        ),
    }


def _down(network: Any) -> set[str]:
    return {" - ".join(link["ends"]) for link in network.controller.links() if not link["up"]}


def _time(network: Any, failure: Failure) -> float:
    began = time.monotonic()
    failure.happen()
    while True:
        if _down(network) == set(failure.links) and all(
            it["up_to_date"] for it in network.controller.status()["switches"] if it["name"] not in failure.dead
        ):
            break
        if time.monotonic() > began + _PATIENCE:
            raise ExperimentError(
                f"{sorted(_down(network))} are down after {_PATIENCE:g} s, not {sorted(failure.links)}"
            )
        time.sleep(_POLL_SECONDS)
    took = time.monotonic() - began
    failure.mend()
    network.controller.wait_links(_PATIENCE)
    return round(took, 3)


def _watch(network: Any, seconds: float) -> int:
    """How often a link was found to be down that works."""
    since = {" - ".join(link["ends"]): link["since"] for link in network.controller.links()}
    time.sleep(seconds)
    return sum(since[" - ".join(link["ends"])] != link["since"] for link in network.controller.links())


def measure(options: argparse.Namespace, stack: ExitStack) -> list[Result]:
    """Runs it. Raises ExperimentError."""
    from lab.net.network import Network

    plan = FabricPlan.of_hosts(Topology("leafspine", 2, 2), 4, options.rate, _BUFFER, "gradlane")
    stack.enter_context(ready_machine([plan]))
    network: Any = stack.enter_context(Network(plan, options.out))
    if options.training:
        network.start_agents(plan.hosts)
        job = Job(network, "exact", 1, plan.hosts, 0.0, options.out)
        stack.callback(job.end)
        job.start()
        job.wait()
    random = Random(1)
    network.controller.wait_links(_PATIENCE)
    results: list[Result] = []
    for kind, make in _failures(network, random).items():
        if options.kinds and kind not in options.kinds:
            continue
        seconds: list[float] = []
        flaps = 0
        for _ in range(options.times):
            flaps += _watch(network, random.uniform(0.2, 1.2))
            seconds.append(_time(network, make()))
        results.append(Result(kind, seconds, flaps))
        print(kind, seconds, flaps, file=sys.stderr, flush=True)
    for loss in _LOSSES:
        for link in plan.links:
            for end in link:
                ask_switch(network.admins()[end.switch], {"op": "set", "port": end.port, "loss": loss})
        results.append(Result(f"{loss:.0%} of frames lost", [], _watch(network, _SECONDS_WITH_LOSS)))
    return results


def table(results: Sequence[Result]) -> TextTable:
    """A row for each kind."""
    rows = [
        (
            it.kind,
            str(len(it.seconds)),
            *(f"{f(it.seconds):.2f}" if it.seconds else "-" for f in (min, median, max)),
            str(it.flaps),
        )
        for it in results
    ]
    return TextTable("Seconds until all is gone around", ("failure", "times", "least", "median", "most", "flaps"), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit status: 1 also if a link was taken for down that works."""
    parser = benchmark.parser("fabric.failover", __doc__, "--times 20 --training")
    parser.add_argument("--times", type=int, default=20, metavar="N", help="of each failure (default: %(default)s)")
    parser.add_argument("--training", action="store_true", help="four hosts train meanwhile")
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=(), metavar="A,B", help="only these")
    rate = checked(parse_rate)
    parser.add_argument("--rate", type=rate, default="25mbit", metavar="R", help="of every link (default: 25mbit)")

    def run(options: argparse.Namespace) -> int:
        with ExitStack() as stack:
            results = measure(options, stack)
        settings = benchmark.chosen(options, "times", "training", "rate")
        document = benchmark.document(settings, results)
        present(make_console(to_stderr=options.json), options, "fabric-failover.json", document, [table(results)])
        return int(any(it.flaps for it in results))

    return benchmark.run(parser, run, arguments)


if __name__ == "__main__":
    sys.exit(main())
