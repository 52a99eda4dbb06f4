# SPDX-License-Identifier: Apache-2.0
"""Where a process gets its job from: a job file, or a controller, which makes it when all ranks have asked."""

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradlane import controller_client, job
from gradlane.client import agent_socket, in_process
from gradlane.controller_client import JSON_TYPE, TOKEN_VARIABLE, AddressError, Client, RequestError
from gradlane.errors import AgentError
from gradlane.job import Job

log = logging.getLogger("gradlane")

UNREACHED_SECONDS = 30.0  # that another controller may take to lead
REMIND_SECONDS = 10.0  # between two lines about who is missing
_MOST_SECONDS = 30.0  # that a controller may have a process wait before it asks again
_ANSWER_SECONDS = 30.0  # for each step of a request: a controller keeps the answer for some seconds
_MAX_ANSWER = 4 << 20


@dataclass(frozen=True)
class Controllers:
    """Where controllers are, of which one leads, and how to ask them. Raises AgentError by `of`."""

    clients: tuple[Client, ...]

    @staticmethod
    def of(addresses: str, environment: Mapping[str, str] = os.environ) -> "Controllers":
        """`addresses`: as GRADLANE_CONTROLLER has them, with commas between; the token, the authority and a certificate
        from the environment."""
        try:
            token = environment.get(TOKEN_VARIABLE, "").strip()
            if file := environment.get("GRADLANE_TOKEN_FILE"):
                token = controller_client.read_token(Path(file))
            ca, certificate, key = (
                Path(path) if (path := environment.get(f"GRADLANE_CONTROLLER_{name}")) else None
                for name in ("CA", "CERT", "KEY")
            )
            found = tuple(
                Client(
                    *(address.strip(), token),
                    ca=ca,
                    certificate=certificate,
                    key=key,
                    seconds=_ANSWER_SECONDS,
                    most=_MAX_ANSWER,
                )
                for address in addresses.split(",")
                if address.strip()
            )
        except AddressError as problem:
            raise AgentError(f"the controller's {problem.key}: {problem.reason} (GRADLANE_CONTROLLER...)") from None
        if not found:
            raise AgentError("GRADLANE_CONTROLLER is empty; it must be like https://10.0.0.9:9560")
        return Controllers(found)


def obtain(
    file: str | Path | Job | None,
    rank: int | None,
    socket: str | Path | None,
    *,
    controller: str | None = None,
    name: str | None = None,
    workers: int | None = None,
    processes: int | None = None,
    template: str | None = None,
) -> Job:
    """The job of a process: that of the file, or without one, that of the controller.

    `rank`: of this host; `workers`: how many hosts there are, of so many `processes` each; without them they come from
    RANK, WORLD_SIZE and LOCAL_WORLD_SIZE of the environment, as torchrun sets them. `controller`: default
    GRADLANE_CONTROLLER; `name`: of the job, default GRADLANE_JOB_NAME; `template`: the name of one of the controller's,
    or a file here, default GRADLANE_TEMPLATE. `socket`: the agent's, which says this host's address. Raises JobError or
    AgentError.
    """
    if isinstance(file, Job):
        return file
    environment = os.environ
    addresses = controller or environment.get("GRADLANE_CONTROLLER")
    if file is not None:
        if controller is not None:
            raise AgentError("a job file and a controller are given: name one of them")
        return job.load(file)
    if not addresses:
        raise AgentError("where is the job? Name a job file, or a controller (GRADLANE_CONTROLLER)")
    name = name or environment.get("GRADLANE_JOB_NAME")
    if not name:
        raise AgentError("a controller is named, but not the job: give job, or GRADLANE_JOB_NAME")
    here = processes_here(processes)
    if rank is None:
        rank = _number("RANK") // here
    if workers is None:
        workers = _hosts(here)
    wanted: dict[str, Any] = {"name": name, "rank": rank, "workers": workers, "processes": here}
    wanted |= {"address": _address(socket), "template": _template(template or environment.get("GRADLANE_TEMPLATE"))}
    return ask(Controllers.of(addresses), wanted)


def processes_here(given: int | None = None) -> int:
    """How many processes of the job this host has: what is given, else LOCAL_WORLD_SIZE, or one."""
    return max(1, given or _number("LOCAL_WORLD_SIZE", 1))


def ask(
    controllers: Controllers,
    wanted: Mapping[str, Any],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Job:
    """The job that the controllers make of what its ranks want; waits until all of them have asked. Raises AgentError
    that says who is missing, what is wrong, or that no controller leads."""
    body = json.dumps(dict(wanted))
    began = reached = reminded = clock()
    turn = 0
    while True:
        asked = controllers.clients[turn % len(controllers.clients)]
        try:
            answer = asked.ask("POST", "/v1/trainings", body, JSON_TYPE)
        except RequestError as problem:
            if problem.status is not None and problem.status not in (429, 502, 503, 504):
                raise AgentError(f"job {wanted['name']!r}: {problem}") from None
            if clock() - reached >= UNREACHED_SECONDS:
                raise AgentError(f"job {wanted['name']!r}: for {UNREACHED_SECONDS:g} s: {problem}") from None
            turn += problem.status != 429
            sleep(min(problem.again or 0.5, _MOST_SECONDS))
            continue
        found = answer.content
        reached = clock()
        if answer.status == 200 and isinstance(found, dict) and isinstance(found.get("text"), str):
            return job.parse(found["text"], f"job {wanted['name']!r} of the {asked}")
        missing, seconds, patience = _waiting(asked, found)
        if reached - began >= patience:
            raise AgentError(
                f"job {wanted['name']!r}: after {patience:g} s (job.patience) the {asked} still waits for {missing}"
            )
        if reached - reminded >= REMIND_SECONDS:
            reminded = reached
            log.warning("job %r: the %s waits for %s", wanted["name"], asked, missing)
        sleep(seconds)


def _waiting(asked: Client, found: Any) -> tuple[str, float, float]:
    """Who is missing, and for how long to wait before the next question, and at most."""
    try:
        seconds, patience = float(found["seconds"]), float(found["patience"])
        if not 0 <= seconds <= _MOST_SECONDS or not patience >= 0:
            raise ValueError
        return str(found["missing"])[:1000], seconds, patience
    except (TypeError, ValueError, KeyError):
        raise AgentError(f"{asked}: something else answers there; is this the controller's address?") from None


def _address(socket: str | Path | None) -> str:
    """This host's, by its agent. Raises AgentError if the agent reports to no controller: the job would be removed."""
    path = socket or agent_socket.default_path()
    if in_process.is_meant(path):
        raise AgentError(
            "a controller makes jobs of hosts whose daemons report to it, and this agent is in the process: name a job "
            "file, or the socket of a daemon"
        )
    status = agent_socket.status(path)
    if not status.get("controller"):
        raise AgentError(
            f"the agent on {path} reports to no controller, which would remove the job, as if its hosts were gone: "
            "write [controller] into its configuration (docs/agent.md)"
        )
    return status["addresses"][0]


def _template(asked: str | None) -> str | None:
    """A name as it is; of a file here its text. Raises AgentError."""
    if not asked or not (asked.endswith(".toml") or "/" in asked):
        return asked or None
    try:
        return Path(asked).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as problem:
        raise AgentError(f"template {asked}: can't be read: {getattr(problem, 'strerror', problem)}") from None


def _hosts(processes: int) -> int:
    size = _number("WORLD_SIZE")
    if size % processes:
        raise AgentError(
            f"WORLD_SIZE is {size}, no multiple of LOCAL_WORLD_SIZE ({processes}): hosts have as many each"
        )
    return size // processes


def _number(name: str, default: int | None = None) -> int:
    """Of the environment. Raises AgentError."""
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdecimal() or len(text) > 9:
        raise AgentError(f"{name} of the environment is {text!r}; torchrun sets it, or give rank and workers")
    return int(text)
