# SPDX-License-Identifier: Apache-2.0
"""The agent as a service: its life from start to stop, signals, the service manager, logs and metrics."""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncGenerator, Callable

from gradlane import hangup, logs, systemd
from gradlane.daemon.agent import Agent
from gradlane.daemon.config import AgentConfig, restart_needed
from gradlane.errors import AgentError, GradlaneError
from gradlane.logs import LogWriter

PROGRAM = logs.Program("gradlane", ("gradlane",), context=("job", "rank", "peer"))
"""Whose log the agent's is."""

log = logging.getLogger("gradlane")


class Service:
    """Runs one agent. `load` reads the configuration again when SIGHUP asks for it."""

    def __init__(self, config: AgentConfig, load: Callable[[], AgentConfig], writer: LogWriter) -> None:
        self._config = config
        self._load = load
        self._writer = writer
        self._agent = Agent(config)

    async def run(self) -> None:
        """Until SIGTERM or SIGINT. Raises AgentError if a port or a socket can't be had."""
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with self._agent.serving(), self._metrics():
            hangup.hear(self._reload)
            addresses = ", ".join(map(str, self._config.addresses))
            log.info("ready: address %s, socket %s", addresses, self._config.socket)
            systemd.notify("READY=1", f"STATUS=serving {addresses}")
            watchdog = loop.create_task(systemd.feed_watchdog())
            await stop.wait()
            watchdog.cancel()
            systemd.notify("STOPPING=1")
            log.info("stopping")

    @contextlib.asynccontextmanager
    async def _metrics(self) -> AsyncGenerator[None]:
        if self._config.metrics is None:
            yield
            return
        try:
            from gradlane.daemon.metrics import MetricsServer
        except ImportError as error:
            raise AgentError(
                "metrics need prometheus_client: `pip install 'gradlane[metrics]'`, or leave out [metrics]"
            ) from error
        server = MetricsServer(self._config.metrics, self._agent.status)
        log.info("metrics at http://%s/metrics", server.endpoint)
        try:
            yield
        finally:
            server.close()

    def _reload(self) -> None:
        """SIGHUP: a configuration that can't be used changes nothing; the log file is opened again in any case."""
        systemd.reloading()
        self._writer.reopen()
        try:
            config = self._load()
            self._agent.reload(config)
            if config.log != self._config.log:
                self._writer = logs.setup(config.log, PROGRAM)
        except GradlaneError as error:
            log.error("the configuration was not reloaded: %s", error)
        else:
            for key in restart_needed(self._config, config):
                log.warning("%s has changed in the configuration: restart the agent to apply it", key)
            self._config = config
            log.info("configuration read again")
        systemd.notify("READY=1")


def run(config: AgentConfig, load: Callable[[], AgentConfig]) -> None:
    """Runs an agent until SIGTERM or SIGINT. Raises AgentError."""
    writer = logs.setup(config.log, PROGRAM)
    # It does little, and the training waits for it: it must not queue behind its neighbours' backward pass.
    try:
        os.setpriority(os.PRIO_PROCESS, 0, config.nice)
    except PermissionError:
        log.warning(
            "not permitted to run at nice %d: busy training processes will delay it (CAP_SYS_NICE)", config.nice
        )
    try:
        asyncio.run(Service(config, load, writer).run())
    finally:
        logging.shutdown()
