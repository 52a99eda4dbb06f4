# SPDX-License-Identifier: Apache-2.0
"""The command line. Exit codes: 0, 1 (the switch or the running controller), 2 (a flag or a file)."""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradlane import GradlaneError, job, toml_file
from gradlane.toml_file import FileError
from gradlane_controller import client, token_command
from gradlane_controller.api import listening
from gradlane_controller.api.listening import ListeningError, TlsFiles
from gradlane_controller.client import AddressError
from gradlane_controller.desired.describing import describe
from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, Programs, count_entries
from gradlane_controller.desired.plan import load_jobs, make_plan
from gradlane_controller.errors import PipelineError
from gradlane_controller.network import fabric_file
from gradlane_controller.policy.trees import BUCKETS
from gradlane_controller.session.counters import format_counters, format_table
from gradlane_controller.trainings.leases import DEFAULT_GRACE

if TYPE_CHECKING:
    from gradlane_controller.service import Controller

_LOG = logging.getLogger("gradlane_controller")

_EXAMPLES = """examples:
  gradlane-controller check --fabric fabric.toml --job job.toml
  gradlane-controller run --fabric fabric.toml --job job.toml --http 127.0.0.1:9560
  gradlane-controller plan --job other.toml
  gradlane-controller status
  gradlane-controller counters --json
  gradlane-controller violations
  gradlane-controller links
  gradlane-controller token create prometheus --token-file fabric.db.token
  curl -H "Authorization: Bearer $(cat fabric.db.token)" -H 'Content-Type: application/toml' \\
    --data-binary @other.toml http://127.0.0.1:9560/v1/jobs
"""


class UsageError(GradlaneError):
    """A flag has a wrong value; the message names it."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return options.command(options)
    except KeyboardInterrupt:
        return 130
    except (FileError, PipelineError, UsageError, AddressError, ListeningError) as problem:
        print(f"gradlane-controller: error: {problem}", file=sys.stderr)
        return 2
    except GradlaneError as problem:
        print(f"gradlane-controller: error: {problem}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gradlane-controller",
        description="Fill the tables of P4Runtime switches from a fabric file and job files, and keep them so.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, function: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=text,
            description=f"{text[0].upper()}{text[1:]}.",
            epilog=_EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.set_defaults(command=function)
        return command

    run = add("run", _run, "write the entries and keep them up to date until SIGTERM; SIGHUP reads the files again")
    _add_files(run)
    run.add_argument(
        "--http",
        default=client.DEFAULT_ADDRESS,
        metavar="HOST:PORT",
        help=f"HTTP API (default {client.DEFAULT_ADDRESS})",
    )
    run.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="where to write the first token, of scope admin, when there is none (default: beside the store, with "
        ".token)",
    )
    run.add_argument("--tls-cert", type=Path, metavar="FILE", help="HTTP API over TLS: its certificate (PEM)")
    run.add_argument("--tls-key", type=Path, metavar="FILE", help="the certificate's key (PEM)")
    run.add_argument(
        "--client-ca", type=Path, metavar="FILE", help="whom certificates must come from that clients then need (PEM)"
    )
    run.add_argument(
        "--insecure", action="store_true", help="allow an address that others reach without TLS; they can read tokens"
    )
    run.add_argument(
        "--store",
        metavar="URL",
        help="keep jobs that arrive over HTTP here, and share it with other controllers of the same fabric: "
        "sqlite:///FILE (default: a file beside the fabric file, of its name with .db), or "
        "postgresql+psycopg://USER@HOST/DATABASE",
    )
    run.add_argument(
        "--template",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a job file without members, id, key and slots, for jobs without one on their hosts; repeatable: the "
        "first is for those that name none",
    )
    run.add_argument(
        "--job-grace",
        type=float,
        default=DEFAULT_GRACE,
        metavar="SECONDS",
        help="remove such a job when no agent has reported it for so long (default %(default)g)",
    )
    run.add_argument("--name", help="what this controller is called among others (default: HOST:PORT of its API)")
    run.add_argument("--no-link-check", action="store_true", help="assume that every link works, and send no LLDP")
    run.add_argument("--verbose", action="store_true", help="log every step of the P4Runtime sessions")

    check = add("check", _check, "check the files and show what would be written; needs no switch")
    _add_files(check)
    check.add_argument("--json", action="store_true", help="as JSON")

    for name, function, text in (
        ("plan", _plan, "show what would change if the files were read again, or a job was put; changes nothing"),
        ("status", _status, "show which switches are up to date, and the jobs"),
        ("counters", _counters, "show the switches' counters, with names"),
        ("links", _links, "show which links work, since when, and what traffic they have that follows no tree"),
        ("violations", _violations, "show gradients that the guard refused: from where, of which job, how often"),
    ):
        ask = add(name, function, f"{text} (asks a running controller)")
        client.add_flags(ask)
        ask.add_argument("--json", action="store_true", help="as JSON")
    token_command.add_parser(add)
    plan = commands.choices["plan"]
    plan.add_argument("--job", type=Path, metavar="FILE", help="a job file to put, instead of reading the files again")
    plan.add_argument("--live", action="store_true", help="compare with what the switches do hold: it is read")
    return parser


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fabric", type=Path, required=True, metavar="FILE", help="the fabric file (TOML)")
    parser.add_argument("--job", type=Path, action="append", default=[], metavar="FILE", help="a job file; repeatable")
    parser.add_argument(
        "--p4-dir",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="DIR",
        help="where p4c's output is: the .json and .p4info.txtpb of the programs (default: the packaged ones)",
    )


def _run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="gradlane-controller: %(levelname)s: %(message)s", stream=sys.stderr)
    _LOG.setLevel(logging.DEBUG if options.verbose else logging.INFO)
    return asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> int:
    # What asks a running controller needs neither FastAPI nor SQLAlchemy, whose import takes longer than the answer.
    from gradlane_controller.api.application import make_application
    from gradlane_controller.api.connections import serving
    from gradlane_controller.api.context import Context
    from gradlane_controller.service import Controller
    from gradlane_controller.store import Store
    from gradlane_controller.trainings.templates import Templates

    host, port = _endpoint(options.http)
    tls = _tls_files(options)
    listening.check_address(host, tls=tls is not None, insecure=options.insecure)
    context = listening.context(tls) if tls else None
    fabric_file.load(options.fabric)  # what is wrong with it is said before a store is made beside it
    url = options.store or f"sqlite:///{options.fabric.absolute().with_suffix('.db')}"
    store = await asyncio.to_thread(Store.open, url)
    name = options.name or f"{socket.gethostname()}:{port}"
    checks = not options.no_link_check
    controller = Controller(Programs(options.p4_dir), options.fabric, options.job, store, name=name, check_links=checks)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()

    api = Context.of(controller, store, Templates(options.template), options.job_grace)
    token_file = options.token_file or Path(f"{store.file or options.fabric.absolute().with_suffix('.db')}.token")
    if await api.tokens.ensure_admin(token_file):
        _LOG.info("the first token, of scope admin, is in %s", token_file)

    def reload() -> None:
        if context and tls:
            _reload_certificate(context, tls)
        task = asyncio.create_task(_reload(controller))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(store.close)
        try:
            await stack.enter_async_context(serving(make_application(api, host), host, port, context))
        except OSError as problem:
            raise UsageError(f"--http: can't listen at {options.http}: {problem.strerror}") from None
        tasks = [
            asyncio.create_task(each)
            for each in (controller.run(), stop.wait(), _announce(controller, options), api.run())
        ]
        try:
            running, stopping, *_ = tasks
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            return 0
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _tls_files(options: argparse.Namespace) -> TlsFiles | None:
    if options.tls_cert is None and options.tls_key is None:
        if options.client_ca is not None:
            raise UsageError("--client-ca: needs --tls-cert and --tls-key")
        return None
    if options.tls_cert is None or options.tls_key is None:
        raise UsageError("--tls-cert and --tls-key go together")
    return TlsFiles(options.tls_cert, options.tls_key, options.client_ca)


def _reload_certificate(context: ssl.SSLContext, files: TlsFiles) -> None:
    try:
        listening.load(context, files)
    except ListeningError as problem:
        _LOG.error("the certificate is that of before: %s", problem)


async def _announce(controller: "Controller", options: argparse.Namespace) -> None:
    await controller.wait_until_ready()
    print(f"ready: {controller.summary}, HTTP at {options.http}", file=sys.stderr, flush=True)


async def _reload(controller: "Controller") -> None:
    try:
        await controller.reload()
    except GradlaneError as problem:
        _LOG.error("reload failed, nothing has changed: %s", problem)


def _check(options: argparse.Namespace) -> int:
    fabric = fabric_file.load(options.fabric)
    jobs = load_jobs(options.job)
    plan = make_plan(Programs(options.p4_dir), fabric, jobs)
    rows = {name: [describe(entity) for entity in entities] for name, entities in plan.entities.items()}
    if options.json:
        keys = ("switch", "table", "key", "action")
        found = [dict(zip(keys, (name, *row), strict=True)) for name, some in rows.items() for row in some]
        print(json.dumps(found, indent=2))
        return 0
    for switch in fabric.switches:
        title = f"switch {switch.name} at {switch.address} would hold"
        print(format_table(title, ("table", "key", "action"), sorted(rows[switch.name])), end="\n\n")
        counts = count_entries(plan.entities[switch.name])
        print(f"{switch.name}: {', '.join(f'{count} {name}' for name, count in counts.items())}", end="\n\n")
    for name, reason in plan.not_summed().items():
        print(f"job {name!r} is reduced by its hosts, not by a switch: {reason}")
    print(f"switches: {len(fabric.switches)}; jobs: {len(jobs)}")
    return 0


def _plan(options: argparse.Namespace) -> int:
    asked, path = client.of_flags(options), f"/v1/plan?live={str(options.live).lower()}"
    expected = {"live", "switches", "not_summed"}
    if options.job is None:
        answer = asked.get(path, expected)
    else:
        answer = asked.post(path, toml_file.read(job.JobError, options.job), expected)
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    for it in answer["switches"]:
        if it["problem"]:
            print(f"switch {it['name']} was not compared: {it['problem']}", end="\n\n")
        elif it["changes"]:
            rows = [(each["change"], each["table"], each["key"], _from_to(each)) for each in it["changes"]]
            print(format_table(f"switch {it['name']}", ("change", "table", "key", "action"), rows), end="\n\n")
    for name, reason in answer["not_summed"].items():
        print(f"job {name!r} would be reduced by its hosts, not by a switch: {reason}")
    for it in answer["switches"]:
        counts = Counter(each["change"] for each in it["changes"])
        print(f"{it['name']}: {', '.join(f'{counts[kind]} to {kind}' for kind in ('insert', 'modify', 'delete'))}")
    return 0


def _from_to(change: dict[str, str]) -> str:
    if change["change"] == "modify":
        return f"{change['before'] or '-'} -> {change['after']}"
    return change["after"] or change["before"]


def _counters(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/counters", {"decisions", "drop_map", "senders", "sums"})
    print(json.dumps(answer, indent=2) if options.json else format_counters(answer))
    return 0


def _links(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/links", {"checked", "links"})
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    rows = [
        (
            " - ".join(it["ends"]),
            "works" if it["up"] else f"nothing arrives at {' and '.join(it['deaf'])}",
            it["since"],
            " - ".join("?" if load is None else f"{load / 1e6:.1f}" for load in it["load"]),
        )
        for it in answer["links"]
    ]
    head = ("ends", "state", "since", "others send, Mbit/s")
    print(format_table("links" if answer["checked"] else "links (not checked)", head, rows))
    return 0


def _violations(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/violations", {"violations"})
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    rows = [
        (it["switch"], it["port"], it["host"] or "?", it["source"], it["job"] or it["job_id"], it["times"])
        for it in answer["violations"]
    ]
    print(format_table("refused gradients", ("switch", "port", "host", "source", "job", "reports"), rows))
    return 0


def _status(options: argparse.Namespace) -> int:
    answer = client.of_flags(options).get("/v1/status", {"ready", "switches", "jobs"})
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    switches = [
        (
            it["name"],
            it["address"],
            it["target"],
            sum(it["entries"].values()),
            "ready" if it["ready"] else it["problem"],
        )
        for it in answer["switches"]
    ]
    print(format_table("switches", ("name", "address", "target", "entries", "state"), switches))
    jobs = [
        (
            it["name"],
            it["id"],
            it["index"],
            " ".join(it["workers"]),
            " ".join(it["servers"]) or "-",
            _describe_sums(it["sums"]),
        )
        for it in answer["jobs"]
    ]
    print(format_table("jobs", ("name", "id", "index", "workers", "servers", "summed in"), jobs))
    return 0


def _describe_sums(sums: dict[str, Any] | None) -> str:
    if sums is None:
        return "-"
    if sums["reason"]:
        return f"its hosts: {sums['reason']}"
    roots = [f"{root} ({buckets} of {BUCKETS})" for root, buckets in sums["roots"].items()]
    others = [name for name in sums["switches"] if name not in sums["roots"]]
    where = f"{', '.join(others)} below {', '.join(roots)}" if others else ", ".join(sums["switches"])
    return f"{where}, slots {sums['slots'][0]} to {sums['slots'][1]}"


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"--http: {text!r} must be HOST:PORT, e.g. {client.DEFAULT_ADDRESS!r}")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    sys.exit(main())
