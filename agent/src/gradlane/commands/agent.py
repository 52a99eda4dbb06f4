# SPDX-License-Identifier: Apache-2.0
"""`gradlane agent`: the daemon."""

import argparse
from dataclasses import replace
from pathlib import Path

from gradlane import logs
from gradlane.daemon import config
from gradlane.daemon.config import AgentConfig, ConfigError
from gradlane.ipc import messages
from gradlane.units import checked


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags, which go before the configuration file."""
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"configuration (default: {config.DEFAULT_FILE}, if it exists)"
    )
    parser.add_argument(
        "--address",
        action="append",
        type=checked(config.parse_address),
        metavar="IP",
        help="this host's address, as the job files write it; repeatable",
    )
    parser.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help=f"Unix socket for training processes (default: {messages.DEFAULT_SOCKET})",
    )
    parser.add_argument(
        "--metrics", type=checked(config.parse_endpoint), metavar="HOST:PORT", help="serve Prometheus metrics"
    )
    parser.add_argument("--log-level", choices=logs.LEVELS, help="least level that is logged (default: info)")
    parser.add_argument("--log-format", choices=logs.FORMATS, help="text for people, or json (default: text)")
    parser.set_defaults(command=run)


def read(options: argparse.Namespace) -> AgentConfig:
    """The configuration file, with the flags in place of its keys. Raises ConfigError."""
    file = options.config or config.DEFAULT_FILE
    base = config.load(file) if options.config else config.load_default() or AgentConfig(())
    given = {
        "addresses": tuple(options.address or ()),
        "socket": options.socket and options.socket.absolute(),
        "metrics": options.metrics,
    }
    found = replace(base, **{key: value for key, value in given.items() if value})
    log = {"level": options.log_level, "format": options.log_format}
    found = replace(found, log=replace(found.log, **{key: value for key, value in log.items() if value}))
    if not found.addresses:
        raise ConfigError(
            str(file),
            "address",
            "is missing: write this host's address as the job files do, here or as --address 10.0.1.2",
        )
    return found


def run(options: argparse.Namespace) -> int:
    """Runs until SIGTERM or SIGINT. Raises AgentError, ConfigError."""
    from gradlane.daemon import service

    service.run(read(options), lambda: read(options))
    return 0
