# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration file, usually /etc/gradlane/agent.toml; docs/agent.md explains every key."""

import grp
import os
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path

from gradlane import pem, toml_file
from gradlane.control.security import Tls
from gradlane.controller_client import AddressError, Client
from gradlane.ipc.messages import DEFAULT_SOCKET
from gradlane.job.agreement import MAX_SHARDS
from gradlane.logs import FORMATS, LEVELS, Log
from gradlane.toml_file import Address, FileError, Table
from gradlane.units import parse_size

DEFAULT_FILE = Path("/etc/gradlane/agent.toml")
MAX_JOBS = 256
_CORES_FOR_TWO = 4
_MOST_BY_ITSELF = 4


class ConfigError(FileError):
    """A configuration that can't be used."""


@dataclass(frozen=True)
class Reporting:
    """To which controllers the agent reports, of which one leads; with the token of a file, over TLS as `Client` has
    it."""

    urls: tuple[str, ...]
    token_file: Path
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def client(self, number: int, token: str, seconds: float, most: int) -> Client:
        """Of one of the controllers, counted on and on. Raises AddressError."""
        tls = {"ca": self.ca, "certificate": self.certificate, "key": self.key}
        return Client(self.urls[number % len(self.urls)], token, **tls, seconds=seconds, most=most)


@dataclass(frozen=True)
class Endpoint:
    """Where an HTTP server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


# Bytes. Beyond its memory the host would end processes, the agent of all jobs among them.
HALF_OF_HOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _threads(runners: int = 1) -> int:
    """Where cores are few, a second thread would only take them from training."""
    return 2 if len(os.sched_getaffinity(0)) >= _CORES_FOR_TWO * runners else 1


def _runners() -> int:
    """What "auto" is: half of the cores are left to training, and few links need more than so many."""
    cores = len(os.sched_getaffinity(0))
    return 1 if cores < _CORES_FOR_TWO else min(cores // 2, _MOST_BY_ITSELF)


@dataclass(frozen=True)
class AgentConfig:
    """The agent's configuration.

    `group`: owns the Unix socket; None: the process's own. `memory`: bytes per job for contributions that wait for
    slower workers; `shared`: those that a job's processes may share with the agent. `runners`: threads that each have
    engines of their own, and `threads`, 2: each with another one that reads. `tls` None: control connections are
    secured by the key of each job file. `metrics` None: none. `controller` None: it reports to none.
    """

    addresses: tuple[Address, ...]
    socket: Path = DEFAULT_SOCKET
    group: str | None = None
    mode: int = 0o660
    nice: int = -10
    realtime: bool = True
    threads: int = field(default_factory=_threads)
    runners: int = 1
    log: Log = field(default_factory=Log)
    metrics: Endpoint | None = None
    tls: Tls | None = None
    controller: Reporting | None = None
    memory: int = 2 << 30
    shared: int = HALF_OF_HOST
    jobs: int = 16


# What a running agent adopts on SIGHUP; everything else needs a restart.
RELOADED = frozenset({"log", "tls", "controller", "memory", "shared", "jobs"})


def restart_needed(old: AgentConfig, new: AgentConfig) -> list[str]:
    """The keys in which two configurations differ and that a running agent can't change."""
    names = [f.name for f in fields(AgentConfig) if f.name not in RELOADED]
    return [name for name in names if getattr(old, name) != getattr(new, name)]


def parse_address(text: str) -> Address:
    """A unicast address. Raises ValueError that says what would be right."""
    try:
        address = ip_address(text)
    except ValueError:
        address = None
    if address is None or address.is_multicast or address.is_unspecified or address.is_link_local:
        raise ValueError(f"{text!r} must be this host's IPv4 or IPv6 address in the job files, e.g. '10.0.1.2'")
    return address


def parse_endpoint(text: str) -> Endpoint:
    """HOST:PORT or [IPv6]:PORT. Raises ValueError that says what would be right."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ValueError(f"{text!r} must be HOST:PORT, e.g. '127.0.0.1:9561' or '[::1]:9561'; port 0: any free one")
    return Endpoint(host.strip("[]"), int(port))


def load(path: Path) -> AgentConfig:
    """Reads and validates a configuration; `addresses` may be empty, for a flag to fill. Raises ConfigError."""
    return parse(toml_file.read(ConfigError, path), str(path))


def load_default() -> AgentConfig | None:
    """What DEFAULT_FILE says, or None if there is none. Raises ConfigError, also if this user may not read it."""
    try:
        DEFAULT_FILE.stat()
    except FileNotFoundError:
        return None
    except OSError:
        pass  # reading it says why it can't be read
    return load(DEFAULT_FILE)


def parse(text: str, file_name: str) -> AgentConfig:
    """Validates the text of a configuration; errors name `file_name`. Raises ConfigError."""
    root = toml_file.parse(ConfigError, text, file_name)
    scheduling, limits = root.table("scheduling"), root.table("limits")
    runners = 1
    if scheduling.has("runners"):
        runners = scheduling.integer_or("auto", "runners", 1, MAX_SHARDS) or _runners()
    config = AgentConfig(
        addresses=_addresses(root),
        socket=root.path("socket", DEFAULT_SOCKET),
        group=_group(root),
        mode=_mode(root),
        nice=scheduling.integer("nice", -20, 19, -10),
        realtime=scheduling.boolean("realtime", True),
        threads=scheduling.integer("threads", 1, 2, _threads(runners)),
        runners=runners,
        log=_log(root.table("log")),
        metrics=_metrics(root.table("metrics")),
        tls=_tls(root.table("tls")) if root.has("tls") else None,
        controller=_controller(root.table("controller")) if root.has("controller") else None,
        memory=limits.quantity("memory", parse_size, "2GiB"),
        shared=limits.quantity("shared", parse_size, f"{HALF_OF_HOST}B"),
        jobs=limits.integer("jobs", 1, MAX_JOBS, 16),
    )
    for table in (scheduling, limits, root):
        table.finish()
    return config


def _addresses(root: Table) -> tuple[Address, ...]:
    if not root.has("address"):
        return ()
    found: list[Address] = []
    for text in root.strings("address"):
        try:
            address = parse_address(text)
        except ValueError as problem:
            raise root.error("address", str(problem)) from None
        if address in found:
            raise root.error("address", f"lists {address} twice")
        found.append(address)
    return tuple(found)


def _group(root: Table) -> str | None:
    if not root.has("group"):
        return None
    name = root.text("group")
    try:
        grp.getgrnam(name)
    except KeyError:
        raise root.error(
            "group", f"is {name!r}, which this host does not have; make it: groupadd --system {name}"
        ) from None
    return name


def _mode(root: Table) -> int:
    text = root.text("mode", "0660")
    mode = int(text, 8) if all(c in "01234567" for c in text) else -1
    if not 0o600 <= mode <= 0o666 or mode & 0o111:
        raise root.error(
            "mode", f"is {text!r}; it must be a socket's permissions in octal, from '0600' to '0666', e.g. '0660'"
        )
    return mode


def _log(table: Table) -> Log:
    log = Log(
        level=table.choice("level", LEVELS, "info"),
        format=table.choice("format", FORMATS, "text"),
        file=table.path("file") if table.has("file") else None,
    )
    if log.file is not None and not log.file.parent.is_dir():
        raise table.error("file", f"is {str(log.file)!r}, but there is no folder {log.file.parent}")
    table.finish()
    return log


def _metrics(table: Table) -> Endpoint | None:
    endpoint = None
    if table.has("listen"):
        try:
            endpoint = parse_endpoint(table.text("listen"))
        except ValueError as problem:
            raise table.error("listen", str(problem)) from None
    table.finish()
    return endpoint


def _controller(table: Table) -> Reporting:
    found = Reporting(
        tuple(table.strings("url")),
        table.path("token_file"),
        *(table.path(key) if table.has(key) else None for key in ("ca", "certificate", "key")),
    )
    table.finish()
    if (found.certificate is None) != (found.key is None):
        raise table.error("certificate", "and key go together")
    for number in range(len(found.urls)):
        try:
            found.client(number, "", 1.0, 1)
        except AddressError as problem:
            key = "url" if problem.key == "address" else problem.key
            raise table.error(key, problem.reason) from None
    return found


def _tls(table: Table) -> Tls:
    tls = Tls(table.path("ca"), table.path("certificate"), table.path("key"))
    table.finish()
    try:
        pem.check(tls.ca, tls.certificate, tls.key)
    except pem.PemError as problem:
        raise table.error(problem.key, problem.reason) from None
    return tls
