# SPDX-License-Identifier: Apache-2.0
"""What SIGHUP does to a running controller: its configuration, certificate, templates and files are read again."""

import argparse
import asyncio
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from gradlane import GradlaneError, systemd
from gradlane.flag_file import FlagFile
from gradlane_controller.api import listening
from gradlane_controller.api.listening import ListeningError, TlsFiles
from gradlane_controller.background import Background
from gradlane_controller.commands.flags import UsageError
from gradlane_controller.errors import BusyError
from gradlane_controller.trainings.templates import TemplateError, Templates

if TYPE_CHECKING:
    from gradlane_controller.service import Controller
    from gradlane_controller.trainings.trainings import Trainings

RELOADED = {"job", "template", "job_grace", "tls_cert", "tls_key", "verbose"}
"""The keys that a running controller takes from its configuration; all others need a restart."""

_LOG = logging.getLogger("gradlane_controller")


class Reloading:
    """Of one controller: `given` on the command line, with `options` at the start, which `file` completes. `context`:
    of its TLS, None: without."""

    def __init__(
        self,
        file: FlagFile,
        given: argparse.Namespace,
        options: argparse.Namespace,
        controller: "Controller",
        trainings: "Trainings",
        context: ssl.SSLContext | None,
    ) -> None:
        self._file, self._given, self._options = file, given, options
        self._controller, self._trainings, self._context = controller, trainings, context
        self._one = asyncio.Lock()  # at a time
        self._background = Background()

    def begin(self) -> None:
        """Reads all again soon; nobody waits for it."""
        self._background.begin(self._run())

    async def _run(self) -> None:
        async with self._one:
            systemd.reloading()
            try:
                await self._reload()
            finally:
                systemd.notify("READY=1")

    async def _reload(self) -> None:
        """Each part that can't be used is said, and is as before."""
        try:
            new = await asyncio.to_thread(self._file.resolve, self._given)
            tls = tls_files(new)
        except GradlaneError as problem:
            _LOG.error("reload failed, nothing has changed: %s", problem)
            return
        for key in self._file.changed(self._options, new):
            if key not in RELOADED or (key == "tls_cert" and (tls is None) != (self._context is None)):
                _LOG.warning("%s has changed in %s: restart the controller to apply it", key, new.config)
        _LOG.setLevel(level(new).upper())
        try:
            if self._context is not None and tls is not None:
                await asyncio.to_thread(listening.load, self._context, tls)
        except ListeningError as problem:
            _LOG.error("the certificate is that of before: %s", problem)
        try:
            self._trainings.templates = await asyncio.to_thread(Templates, new.template)
        except TemplateError as problem:
            _LOG.error("the templates are those of before: %s", problem)
        self._trainings.leases.grace = new.job_grace
        await self._controller.wait_until_tried()
        try:
            await self._reload_files(new.job)
        except GradlaneError as problem:
            _LOG.error("reload failed, fabric and jobs are as before: %s", problem)

    async def _reload_files(self, paths: list[Path]) -> None:
        while True:
            try:
                return await self._controller.reload(paths)
            except BusyError as problem:
                _LOG.warning("files are read later: %s", problem)


def tls_files(options: argparse.Namespace) -> TlsFiles | None:
    """What the flags name; None: no TLS. Raises UsageError if they contradict one another."""
    if options.tls_cert is None and options.tls_key is None:
        if options.client_ca is not None:
            raise UsageError("--client-ca: needs --tls-cert and --tls-key")
        return None
    if options.tls_cert is None or options.tls_key is None:
        raise UsageError("--tls-cert and --tls-key go together")
    return TlsFiles(options.tls_cert, options.tls_key, options.client_ca)


def level(options: argparse.Namespace) -> str:
    """The least one that is logged."""
    return "debug" if options.verbose else "info"
