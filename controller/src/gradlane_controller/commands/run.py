# SPDX-License-Identifier: Apache-2.0
"""`run`: the controller itself."""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import sys

from gradlane import GradlaneError
from gradlane_controller.commands import flags
from gradlane_controller.commands.flags import DEFAULT_HTTP, UsageError
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.http_api import make_application
from gradlane_controller.http_server import serving
from gradlane_controller.network import fabric_file
from gradlane_controller.service import Controller
from gradlane_controller.store import Store

_LOG = logging.getLogger("gradlane_controller")


def add(command: flags.Add) -> None:
    """Its flags."""
    run = command("run", _run, "write the entries and keep them up to date until SIGTERM; SIGHUP reads the files again")
    flags.files(run)
    flags.programs(run)
    run.add_argument("--http", default=DEFAULT_HTTP, metavar="HOST:PORT", help=f"HTTP API (default {DEFAULT_HTTP})")
    run.add_argument(
        "--store",
        metavar="URL",
        help="keep here what must survive a restart (jobs that arrive over HTTP, which switches are drained, what has "
        "happened), and share it with other controllers of the same fabric: sqlite:///FILE (default: a file beside the "
        "fabric file, of its name with .db), or postgresql+psycopg://USER@HOST/DATABASE",
    )
    run.add_argument("--name", help="what this controller is called among others (default: this HOST:PORT)")
    run.add_argument("--no-link-check", action="store_true", help="assume that every link works, and send no LLDP")
    run.add_argument("--verbose", action="store_true", help="log every step of the P4Runtime sessions")


def _run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="gradlane-controller: %(levelname)s: %(message)s", stream=sys.stderr)
    _LOG.setLevel(logging.DEBUG if options.verbose else logging.INFO)
    return asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> int:
    host, port = flags.parse_endpoint(options.http)
    fabric_file.load(options.fabric)  # what is wrong with it is said before a store is made beside it
    url = options.store or f"sqlite:///{options.fabric.absolute().with_suffix('.db')}"
    store = await asyncio.to_thread(Store.open, url)
    name = options.name or f"{socket.gethostname()}:{port}"
    checks = not options.no_link_check
    controller = Controller(Programs(options.p4_dir), options.fabric, options.job, store, name=name, check_links=checks)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    reloads: set[asyncio.Task[None]] = set()

    def reload() -> None:
        task = asyncio.create_task(_reload(controller))
        reloads.add(task)
        task.add_done_callback(reloads.discard)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, reload)

    async with contextlib.AsyncExitStack() as stack:
        stack.callback(store.close)
        try:
            await stack.enter_async_context(serving(make_application(controller, host), host, port))
        except OSError as problem:
            raise UsageError(f"--http: can't listen at {options.http}: {problem.strerror}") from None
        tasks = [asyncio.create_task(each) for each in (controller.run(), stop.wait(), _announce(controller, options))]
        try:
            running, stopping, _ = tasks
            await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running
            return 0
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _announce(controller: Controller, options: argparse.Namespace) -> None:
    await controller.wait_until_ready()
    print(f"ready: {controller.summary}, HTTP at {options.http}", file=sys.stderr, flush=True)


async def _reload(controller: Controller) -> None:
    try:
        await controller.reload()
    except GradlaneError as problem:
        _LOG.error("reload failed, nothing has changed: %s", problem)
