# SPDX-License-Identifier: Apache-2.0
"""The run file: one JSON file that the experiment runner writes and every process of one arm's run reads."""

import dataclasses
import json
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from gradlane import toml_file
from gradlane.toml_file import FileError, Table
from gradlane.units import parse_size
from lab.model.arms import ARMS, Arm

MODELS = ("cnn", "transformer")


class ConfigError(FileError):
    """A run file that can't be used."""


@dataclass(frozen=True)
class Node:
    """One rank. `interface` is the device of `address`; `socket` the path of the host's agent, for `gradlane` arms;
    `computation_ms` what a step's computation takes a worker, with a pause that makes up the rest; 0 for no pause."""

    rank: int
    host: str
    address: str
    interface: str
    socket: str = ""
    computation_ms: int = 0

    def __str__(self) -> str:
        return f"rank {self.rank} ({self.host}, {self.address})"


@dataclass(frozen=True)
class Config:
    """One run of one arm. Ranks count from 0, the workers first, then the servers.

    width: scale of the model's layers, so of the gradient. batch: examples of one worker in one step.
    steps: how many steps the run has, whatever the accuracy. evaluate_every: steps between two snapshots that are
    evaluated after the run. timeout: seconds without progress after which a peer counts as dead; it bounds the time to
    the error. join_timeout: seconds that processes wait for each other at the start. start_delay: seconds
    from the announcement of the start (in the worker's records) to step 0, for whoever else must start then.
    rendezvous: path where the workers find each other, a file that does not exist before the run; `save` makes it up.
    discard_port: UDP port on which workers and servers discard the background bursts at no cost; 0 for none.
    bucket_bytes, congestion_control and min_rto_ms replace the arm's own.
    chunk_bytes, chunk_credits: unit of the pipeline of the ps arms, and how many of them a worker has in flight to one
    server: enough to fill the path, few enough that an incast loses little in a shallow buffer, and that no flow runs
    ahead of those that it must be summed with.
    """

    arm: str
    seed: int
    model: str
    width: int
    batch: int
    steps: int
    workers: tuple[Node, ...]
    servers: tuple[Node, ...] = ()
    job: str = ""
    evaluate_every: int = 2
    timeout: int = 8
    join_timeout: int = 60
    start_delay: int = 1
    rendezvous: str = ""
    server_port: int = 47500
    discard_port: int = 0
    bucket_bytes: int = 0
    congestion_control: str = ""
    min_rto_ms: int = 0
    chunk_bytes: int = parse_size("8KiB")
    chunk_credits: int = 2

    @property
    def effective_arm(self) -> Arm:
        """The arm, with what this run replaces in it."""
        arm = ARMS[self.arm]
        return dataclasses.replace(
            arm,
            bucket_bytes=self.bucket_bytes or arm.bucket_bytes,
            congestion_control=self.congestion_control or arm.congestion_control,
            min_rto_ms=self.min_rto_ms or arm.min_rto_ms,
        )

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every rank, in rank order."""
        return self.workers + self.servers

    def worker(self, rank: int) -> Node:
        """The worker of that rank. Raises ValueError that names the ranks there are."""
        if not 0 <= rank < len(self.workers):
            raise ValueError(f"rank {rank} is no worker's: the workers' ranks are 0 to {len(self.workers) - 1}")
        return self.workers[rank]

    def server(self, rank: int) -> Node:
        """The server of that rank. Raises ValueError that names the ranks there are."""
        for node in self.servers:
            if node.rank == rank:
                return node
        known = ", ".join(str(node.rank) for node in self.servers) or "none"
        raise ValueError(f"rank {rank} is no server's: the servers' ranks are {known}")

    def save(self, path: str | Path) -> None:
        """Writes the run file, for one run: it names a rendezvous file that was never used before."""
        fresh = dataclasses.replace(self, rendezvous=f"{Path(path).absolute()}.{secrets.token_hex(8)}")
        document = dataclasses.asdict(
            fresh, dict_factory=lambda items: {key: value for key, value in items if value != ""}
        )
        Path(path).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def load(path: str | Path) -> Config:
    """Reads and validates a run file. Raises ConfigError that names file, key and what would be right."""
    file = str(path)
    text = toml_file.read(ConfigError, path)
    try:
        document = json.loads(text)
    except json.JSONDecodeError as problem:
        raise ConfigError(file, "", f"not valid JSON: {problem}") from None
    if not isinstance(document, dict):
        raise ConfigError(file, "", "must be a JSON object")
    return _parse(toml_file.root_table(ConfigError, file, cast(dict[str, Any], document)))


def _parse(root: Table) -> Config:
    arm = ARMS[root.choice("arm", tuple(ARMS))]
    gradlane = arm.kind == "gradlane"
    workers = _nodes(root.tables("workers"), 0, gradlane)
    if not workers:
        raise root.error("workers", "is missing: a run has at least one worker")
    servers = _nodes(root.tables("servers"), len(workers), gradlane)
    if arm.servers and not servers:
        raise root.error("servers", f"is missing: arm {arm.name!r} needs at least one server")
    config = Config(
        arm=arm.name,
        seed=root.integer("seed", 0, 2**31 - 1),
        model=root.choice("model", MODELS),
        width=root.integer("width", 8, 8192),
        batch=root.integer("batch", 1, 4096),
        steps=root.integer("steps", 1, 10**6),
        workers=workers,
        servers=servers,
        job=root.text("job") if gradlane else _optional_text(root, "job"),
        evaluate_every=root.integer("evaluate_every", 1, 10**6, 2),
        timeout=root.integer("timeout", 1, 3600, 8),
        join_timeout=root.integer("join_timeout", 1, 3600, 60),
        start_delay=root.integer("start_delay", 0, 60, 1),
        rendezvous=root.text("rendezvous"),
        server_port=root.integer("server_port", 1, 65535, 47500),
        discard_port=root.integer("discard_port", 0, 65535, 0),
        bucket_bytes=root.integer("bucket_bytes", 0, 2**30, 0),
        congestion_control=_optional_text(root, "congestion_control"),
        min_rto_ms=root.integer("min_rto_ms", 0, 200, 0),
        chunk_bytes=root.integer("chunk_bytes", 1024, 2**24, Config.chunk_bytes),
        chunk_credits=root.integer("chunk_credits", 1, 2**20, Config.chunk_credits),
    )
    if config.chunk_bytes % 4:
        raise root.error("chunk_bytes", f"is {config.chunk_bytes}; it must be a multiple of 4, the size of an element")
    root.finish()
    return config


def _nodes(tables: list[Table], first_rank: int, gradlane: bool) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for rank, table in enumerate(tables, first_rank):
        node = Node(
            rank=table.integer("rank", 0, 65535),
            host=table.name("host"),
            address=table.text("address"),
            interface=table.text("interface"),
            socket=table.text("socket") if gradlane else _optional_text(table, "socket"),
            computation_ms=table.integer("computation_ms", 0, 60_000, 0),
        )
        if node.rank != rank:
            raise table.error("rank", f"is {node.rank}; it must be {rank}: ranks count up, workers first, then servers")
        table.finish()
        nodes.append(node)
    return tuple(nodes)


def _optional_text(table: Table, key: str) -> str:
    return table.text(key) if table.has(key) else ""
