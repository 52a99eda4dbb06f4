# SPDX-License-Identifier: Apache-2.0
"""The demonstration: trains one model in several ways over one congested fabric, side by side, and compares."""

import argparse
import json
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import claims
import preconditions
import results
from gradlane.units import format_rate, parse_rate, parse_size
from scenarios import SCENARIOS, Scenario, ScenarioError
from training.arms import ARMS

DEFAULT_SCENARIO = "incast"
PIPELINE = Path(__file__).resolve().parent.parent / "p4src" / "build" / "v1model"
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_EXAMPLES = """examples:
  sudo python mininet/demo.py
  sudo python mininet/demo.py --scenario burst --workers 4 --rate 200mbit --buffer 64kB --seed 1
  sudo python mininet/demo.py --arms gradlane,ddp-gloo --model transformer --json > result.json
  sudo python mininet/demo.py --switch bmv2
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demonstration; returns the exit code: 0, 1 (something failed on the way), 2 (usage, or the machine)."""
    options = _parser().parse_args(arguments)
    try:
        scenario = chosen_scenario(options)
        lock = make_ready(options.switch, scenario)
    except (ScenarioError, preconditions.PreconditionError) as problem:
        print(f"demo: error: {problem}", file=sys.stderr)
        return 2
    with lock:
        return _run(options, scenario)


def chosen_scenario(options: argparse.Namespace) -> Scenario:
    """The scenario with the user's settings. Raises ScenarioError."""
    scenario = SCENARIOS[options.scenario].with_settings(
        arms=options.arms,
        workers=options.workers,
        servers=options.servers,
        rate=options.rate,
        buffer=options.buffer,
        steps=options.steps,
    )
    if scenario.loss and options.switch == "bmv2":
        raise ScenarioError(
            f"scenario {scenario.name!r} needs a link that loses frames, which BMv2 has not by itself; "
            "the netem qdisc could, but this runner does not use it: choose --switch gradlane"
        )
    return scenario


def make_ready(switch: str, scenario: Scenario) -> Any:
    """Checks the machine and takes the lock, which the caller closes at the end. Raises PreconditionError."""
    from plan import SWITCH

    hosts = scenario.workers + scenario.servers + (1 if scenario.bursts else 0)
    preconditions.check_root()
    lock = preconditions.lock()
    try:
        preconditions.check(switch, (9559, 9560), [f"{SWITCH}-eth{n}" for n in range(1, hosts + 1)], PIPELINE)
    except BaseException:
        lock.close()
        raise
    for number in STOP_SIGNALS:
        signal.signal(number, _stop)
    return lock


def _stop(number: int, _frame: object) -> None:
    """Ends the run as an exception, so that everything is torn down on the way out; further signals change nothing."""
    for each in STOP_SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    print(f"\nstopped by {signal.Signals(number).name}: tearing down", file=sys.stderr)
    raise SystemExit(128 + number)


def _run(options: argparse.Namespace, scenario: Scenario) -> int:
    # Mininet and matplotlib are imported only now: preconditions says it better than an ImportError if one is missing.
    import report
    from arm_run import TASKS
    from console import ProgressLine, make_console, print_results
    from errors import ExperimentError
    from experiment import Experiment

    console = make_console(to_stderr=options.json)
    out: Path = options.out
    if out.exists():
        for path in (out / "logs", out / "result.json", out / "report.html"):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    settings = settings_of(scenario, options.switch, options.model, [options.seed])
    found: list[results.ArmResult] = []
    try:
        with ProgressLine(console) as line:
            line.say(f"scenario {scenario.name}: {scenario.summary}")
            for other in SCENARIOS.values():
                if other.name != scenario.name:
                    line.say(f"   (other: --scenario {other.name}: {other.summary})")
            with Experiment(scenario, TASKS[options.model], options.switch, options.seed, out) as experiment:
                for arm in scenario.arms:
                    line.say(f"arm {arm}: {ARMS[arm].summary}")
                    found.append(experiment.run(arm, options.seed, line.show))
    except ExperimentError as problem:
        print(f"demo: error: {problem}", file=sys.stderr)
        return 1
    checked = claims.evaluate(found)
    document = results.document(settings, found, checked)
    results.save(out / "result.json", document)
    (out / "report.html").write_text(
        report.render(scenario.name, scenario.summary, settings, found, checked), encoding="utf-8"
    )
    print_results(console, found, checked)
    console.print(f"report: {out / 'report.html'}   figures: {out / 'result.json'}", soft_wrap=True)
    if options.json:
        print(json.dumps(document, indent=1))
    return 0


def settings_of(scenario: Scenario, switch: str, model: str, seeds: Sequence[int]) -> dict[str, Any]:
    """The settings of a run, as the result file and the report state them."""
    return {
        "scenario": scenario.name,
        "switch": "gradlane-switch" if switch == "gradlane" else "BMv2",
        "model": model,
        "workers": scenario.workers,
        "servers": scenario.servers,
        "rate": format_rate(scenario.rate),
        "buffer": f"{scenario.buffer / 1000:g}kB",
        "steps": scenario.steps,
        "loss on the first worker's link": scenario.loss,
        "bursts": _describe_bursts(scenario),
        "seeds": ", ".join(map(str, seeds)),
    }


def _describe_bursts(scenario: Scenario) -> str:
    bursts = scenario.bursts
    if bursts is None:
        return "none"
    return (
        f"{bursts.rate_share:g} x rate for {1000 * bursts.period * bursts.duty:g} ms of every "
        f"{1000 * bursts.period:g} ms to every {bursts.receivers}"
    )


def _parser() -> argparse.ArgumentParser:
    scenarios = "; ".join(f"{scenario.name}: {scenario.summary}" for scenario in SCENARIOS.values())
    parser = argparse.ArgumentParser(
        prog="demo.py", description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--switch", choices=("gradlane", "bmv2"), default="gradlane", help="(default: %(default)s)")
    parser.add_argument(
        "--scenario", choices=tuple(SCENARIOS), default=DEFAULT_SCENARIO, help=scenarios.replace("%", "%%")
    )
    parser.add_argument("--workers", type=int, metavar="N", help="2 to 16")
    parser.add_argument("--servers", type=int, metavar="N", help="1 to 8, for arms with parameter servers")
    parser.add_argument("--rate", type=_quantity(parse_rate), metavar="R", help="of every link, 1mbit to 1gbit")
    parser.add_argument("--buffer", type=_quantity(parse_size), metavar="B", help="of every switch port, 8kB to 4MB")
    parser.add_argument("--steps", type=int, metavar="N", help="of training, the same for every arm")
    parser.add_argument("--seed", type=_seed, default=1, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--arms", type=_names, metavar="A,B", help=f"of {', '.join(ARMS)}; the subject first")
    parser.add_argument("--model", choices=("cnn", "transformer"), default="cnn", help="(default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/demo"), metavar="DIR", help="(default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="the result as JSON on standard output")
    return parser


def _quantity(parse: Callable[[str], int]) -> Callable[[str], int]:
    def convert(text: str) -> int:
        try:
            return parse(text)
        except ValueError as problem:
            raise argparse.ArgumentTypeError(str(problem)) from None

    return convert


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is no seed: a whole number from 0 to {2**31 - 1}")
    return int(text)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


if __name__ == "__main__":
    sys.exit(main())
