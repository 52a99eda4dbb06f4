# SPDX-License-Identifier: Apache-2.0
"""`run`: the controller itself."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
from pathlib import Path

from gradlane import GradlaneError
from gradlane_controller.commands import flags
from gradlane_controller.commands.flags import DEFAULT_HTTP, UsageError
from gradlane_controller.desired.pipeline import Programs
from gradlane_controller.http_api import make_application
from gradlane_controller.http_server import serving
from gradlane_controller.service import Controller

_LOG = logging.getLogger("gradlane_controller")


def add(command: flags.Add) -> None:
    """Its flags."""
    run = command("run", _run, "write the entries and keep them up to date until SIGTERM; SIGHUP reads the files again")
    flags.files(run)
    flags.programs(run)
    run.add_argument("--http", default=DEFAULT_HTTP, metavar="HOST:PORT", help=f"HTTP API (default {DEFAULT_HTTP})")
    run.add_argument(
        "--job-dir",
        type=Path,
        metavar="DIR",
        help="keep here what must survive a restart: jobs that arrive over HTTP, and which switches are drained "
        "(default: a folder beside the fabric file, of its name with .jobs)",
    )
    run.add_argument("--no-link-check", action="store_true", help="assume that every link works, and send no LLDP")
    run.add_argument("--verbose", action="store_true", help="log every step of the P4Runtime sessions")


def _run(options: argparse.Namespace) -> int:
    logging.basicConfig(format="gradlane-controller: %(levelname)s: %(message)s", stream=sys.stderr)
    _LOG.setLevel(logging.DEBUG if options.verbose else logging.INFO)
    return asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> int:
    host, port = flags.parse_endpoint(options.http)
    job_folder = options.job_dir or options.fabric.with_suffix(".jobs")
    if not job_folder.parent.is_dir():
        raise UsageError(f"--job-dir: {job_folder} can't be made, as there is no {job_folder.parent}; make it first")
    programs = Programs(options.p4_dir)
    controller = Controller(programs, options.fabric, options.job, job_folder, check_links=not options.no_link_check)
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
