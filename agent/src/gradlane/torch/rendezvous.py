# SPDX-License-Identifier: Apache-2.0
"""Joins the job of `torch.distributed.init_process_group("gradlane")`, under torchrun or any other launcher.

GRADLANE_JOB names the job file; without it the controller of GRADLANE_CONTROLLER makes the job. A file without
[[worker]] is a template: the ranks then send each other their agents' addresses over torch's store, and each completes
its own copy. GRADLANE_SOCKET names the agent's socket, or says "process": then there is one in this process.

Anyone who reaches the store can read and write it, so the job's key is not there, and what is there ends up in no other
key of the job file.
"""

import json
import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gradlane import job
from gradlane.client import agent_socket, in_process, training
from gradlane.client.connection import Connection
from gradlane.errors import AgentError

_LOOK_SECONDS = 0.02, 0.5  # the first pause between two looks at the store, and the longest: it serves all ranks


def join(store: Any, rank: int, size: int, number: int = 0) -> Connection:
    """Joins the job as process `rank` of `size`. `store`: torch's, for this group alone. `number`: of the job, among
    several that one file is for.

    Raises AgentError, gradlane.job.JobError.
    """
    path = os.environ.get("GRADLANE_JOB")
    if path:
        text = Path(path).read_text()
        if number:
            text = job.renumbered(text, path, number)
        if job.is_template(text, path):
            text = _complete(text, store, rank, size)
        whole = job.parse(text, path)
    elif os.environ.get("GRADLANE_CONTROLLER"):
        here = training.processes_here()
        path = "the job of the controller"
        whole = training.obtain(None, rank // here, None, workers=size // here)
    else:
        raise AgentError(
            'init_process_group("gradlane") needs GRADLANE_JOB, the path of the job file or of a template, or '
            "GRADLANE_CONTROLLER"
        )
    processes = len(whole.workers) * whole.processes
    if processes != size:
        raise AgentError(f"{path} has {processes} worker processes, and the group has {size}: they must be the same")
    return Connection(whole, rank // whole.processes, rank % whole.processes)


def _complete(template: str, store: Any, rank: int, size: int) -> str:
    """The text of the job file, with the same workers at all ranks. Processes with the same agent are on one host."""
    place = socket.gethostname(), _address(agent_socket.default_path())
    answer = _answer(store, place, size) if rank == 0 else _ask(store, place, rank)
    if "error" in answer:
        raise AgentError(answer["error"])
    return job.fill(template, answer["workers"])


# torchrun's store outlives its workers, so what the ranks of an earlier life have said is still there. Each life of
# rank 0 has a name of its own, under which it is told and answers, and each rank one by which it knows its answer.


def _answer(store: Any, place: tuple[str, str], size: int) -> dict[str, Any]:
    """What rank 0 says, once it was told of all others' places."""
    life = secrets.token_hex(8)
    store.set("life", life)
    told = [json.loads(store.get(f"{life}/{other}")) for other in range(1, size)]
    try:
        answer: dict[str, Any] = {"workers": workers([place, *((host, address) for _, host, address in told)])}
    except AgentError as error:
        answer = {"error": str(error)}
    store.set(f"{life}/job", json.dumps({**answer, "asked": [question for question, _, _ in told]}))
    return answer


def _ask(store: Any, place: tuple[str, str], rank: int) -> dict[str, Any]:
    """What rank 0 says to this one. Raises AgentError after the store's timeout."""
    life, question = "", secrets.token_hex(8)
    deadline = time.monotonic() + store.timeout.total_seconds()
    pause, longest = _LOOK_SECONDS
    while time.monotonic() < deadline:
        if (latest := store.get("life").decode()) != life:
            life = latest
            store.set(f"{life}/{rank}", json.dumps([question, *place]))
        if store.check([f"{life}/job"]):
            answer = json.loads(store.get(f"{life}/job"))
            if question in answer["asked"]:
                return answer
        time.sleep(pause)
        pause = min(1.5 * pause, longest)
    raise AgentError(f"rank 0 has not said within {store.timeout.total_seconds():g} s who is in the job")


def _address(place: Path) -> str:
    """This host's, by its agent."""
    if in_process.is_meant(place):
        return in_process.own_address(place)
    addresses = agent_socket.status(place).get("addresses")
    if not addresses:
        raise AgentError(f"the agent on {place} does not report its address: is it older than this library?")
    return addresses[0]


def workers(places: Sequence[tuple[str, str]]) -> list[tuple[str, str, int]]:
    """(host, address, processes) of each host from (host, address) of each rank. Raises AgentError."""
    hosts: list[tuple[str, str]] = []
    for rank, place in enumerate(places):
        if not hosts or place != hosts[-1]:
            if place in hosts:
                raise AgentError(
                    f"rank {rank} is on {place[0]} ({place[1]}), as a lower rank is, but not the one before it: the "
                    "ranks of a host must follow each other"
                )
            hosts.append(place)
    counts = Counter(places)
    if len(set(counts.values())) > 1:
        found = ", ".join(f"{counts[place]} on {place[0]} ({place[1]})" for place in hosts)
        raise AgentError(f"every host must run the same number of processes, and there are {found}")
    names = Counter(name for name, _ in hosts)
    return [
        (name if names[name] == 1 else f"{name}-{number}", address, counts[name, address])
        for number, (name, address) in enumerate(hosts)
    ]
