# SPDX-License-Identifier: Apache-2.0
"""`run`: the controller itself."""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from gradlane import hangup, logs
from gradlane.flag_file import FlagFile
from gradlane.logs import Log
from gradlane.systemd import feed_watchdog, notify
from gradlane_controller import client
from gradlane_controller.api import listening
from gradlane_controller.commands import flags, reloading
from gradlane_controller.commands.flags import UsageError
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.network import fabric_file
from gradlane_controller.trainings.leases import DEFAULT_GRACE

if TYPE_CHECKING:
    from gradlane_controller.service import Controller

_LOG = logging.getLogger("gradlane_controller")
_PROGRAM = logs.Program(
    *("gradlane-controller", ("gradlane_controller",)),
    context=("switch",),
    details=("inserted", "modified", "deleted", "refused", "seconds"),
    limited=logging.INFO,  # who asks for every step gets it
    subject="switch",
)


def add(command: flags.Add) -> None:
    """Its flags."""
    run = command("run", _run, "write the entries and keep them up to date until SIGTERM; SIGHUP reads the files again")
    run.set_defaults(config_file=add_flags(run))


def add_flags(run: argparse.ArgumentParser) -> FlagFile:
    """Those of `run`, which may stand in a file."""
    flags.files(run)
    flags.programs(run)
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
        help="keep here what must survive a restart (jobs that arrive over HTTP, which switches are drained, what has "
        "happened), and share it with other controllers of the same fabric: sqlite:///FILE (default: a file beside the "
        "fabric file, of its name with .db), or postgresql+psycopg://USER@HOST/DATABASE",
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
        help=f"remove such a job when no agent has reported it for so long (default {DEFAULT_GRACE:g})",
    )
    run.add_argument("--name", help="what this controller is called among others (default: this HOST:PORT)")
    run.add_argument("--no-link-check", action="store_true", help="assume that every link works, and send no LLDP")
    run.add_argument(
        "--log-format", choices=logs.FORMATS, default="text", help="text for people, or json (default text)"
    )
    run.add_argument("--verbose", action="store_true", help="log every step of the P4Runtime sessions")
    return FlagFile(run, "/etc/gradlane-controller/controller.toml")


def configured(file: Path) -> argparse.Namespace:
    """What a controller that has this configuration, and no flags, runs with. Raises ConfigError."""
    return add_flags(argparse.ArgumentParser()).resolve(argparse.Namespace(config=file))


def store_url(options: argparse.Namespace) -> str:
    """Where a controller with these options keeps things."""
    return options.store or f"sqlite:///{options.fabric.absolute().with_suffix('.db')}"


def _run(given: argparse.Namespace) -> int:
    file: FlagFile = given.config_file
    options = file.resolve(given)
    logs.setup(Log(reloading.level(options), options.log_format), _PROGRAM)
    try:
        return asyncio.run(_serve(file, given, options))
    finally:
        logging.shutdown()


async def _serve(file: FlagFile, given: argparse.Namespace, options: argparse.Namespace) -> int:
    # What asks a running controller needs neither FastAPI nor SQLAlchemy, whose import takes longer than the answer.
    from gradlane_controller.api.application import make_application
    from gradlane_controller.api.connections import serving
    from gradlane_controller.api.context import Context
    from gradlane_controller.service import Controller
    from gradlane_controller.store import Store
    from gradlane_controller.trainings.templates import Templates

    host, port = flags.parse_endpoint(options.http)
    tls = reloading.tls_files(options)
    listening.check_address(host, tls=tls is not None, insecure=options.insecure)
    context = listening.context(tls) if tls else None
    fabric_file.load(options.fabric)  # what is wrong with it is said before a store is made beside it
    store = await asyncio.to_thread(Store.open, store_url(options))
    name = options.name or f"{socket.gethostname()}:{port}"
    checks = not options.no_link_check
    controller = Controller(Programs(options.p4_dir), options.fabric, options.job, store, name=name, check_links=checks)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    api = Context.of(controller, store, Templates(options.template), options.job_grace)
    token_file = options.token_file or Path(f"{store.file or options.fabric.absolute().with_suffix('.db')}.token")
    if await api.tokens.ensure_admin(token_file):
        _LOG.info("the first token, of scope admin, is in %s", token_file)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    hangup.hear(reloading.Reloading(file, given, options, controller, api.trainings, context).begin)

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(store.close)
        try:
            application = make_application(api, host)
            await stack.enter_async_context(serving(application, host, port, context, api.traffic.refused))
        except OSError as problem:
            raise UsageError(f"--http: can't listen at {options.http}: {problem.strerror}") from None
        tasks = [
            asyncio.create_task(each)
            for each in (controller.run(), stop.wait(), _announce(controller, options), api.run(), feed_watchdog())
        ]
        notify("READY=1", f"STATUS=HTTP at {options.http}")
        try:
            running, stopping, *_ = tasks
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            return 0
        finally:
            notify("STOPPING=1")
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _announce(controller: "Controller", options: argparse.Namespace) -> None:
    await controller.wait_until_ready()
    _LOG.info("ready: %s, HTTP at %s", controller.summary, options.http)
    notify(f"STATUS={controller.summary}, HTTP at {options.http}")
