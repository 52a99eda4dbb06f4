# SPDX-License-Identifier: Apache-2.0
"""The groups of processes that call collectives together, at an agent."""

import asyncio
import hashlib
from typing import Any

from gradlane._core import ffi, lib
from gradlane.datapath.site import ALGORITHMS, Site
from gradlane.errors import AgentError
from gradlane.ipc.messages import Message


class Groups:
    """By ranks and label. A pair is a group of two, with a direction, for send and receive."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known: dict[str, asyncio.Task[int]] = {}

    async def join(self, process: int, message: Message) -> dict[str, Any]:
        """What a process is answered. Raises ValueError, AgentError."""
        job, host = self._site.job, self._site.rank
        ranks, label, pair = message["ranks"], message["label"], message["pair"]
        total = len(job.workers) * job.processes
        if len(set(ranks)) != len(ranks) or not all(0 <= rank < total for rank in ranks):
            raise ValueError(f"group {ranks[:8]}: each rank once, 0 to {total - 1}")
        if host * job.processes + process not in ranks:
            raise ValueError(f"group {ranks[:8]}: rank {host * job.processes + process} is not in it")
        if pair and len(ranks) != 2:
            raise ValueError(f"a pair has two different ranks, not {ranks[:8]}")
        hosts = sorted({rank // job.processes for rank in ranks})
        members = {k: sorted(rank % job.processes for rank in ranks if rank // job.processes == k) for k in hosts}
        if not pair and (ranks != sorted(ranks) or len({len(local) for local in members.values()}) > 1):
            raise ValueError(f"group {ranks[:8]}: ascending ranks, and the same number of processes on each host")
        name = f"{'pair' if pair else 'group'} {_named(ranks)} {label}".strip()
        number = await self._site.share(self._known, name, self._form(name, pair, ranks, hosts, members[host]))
        return {"group": number, "shard": number % len(self._site.shards)}

    async def _form(self, name: str, pair: bool, ranks: list[int], hosts: list[int], members: list[int]) -> int:
        site = self._site
        number = await site.agree("group", name, len(ranks))
        sizes = range(int(lib.GL_SIZE_CLASSES))
        c_hosts, c_members = ffi.new("uint16_t[]", hosts), ffi.new("uint16_t[]", members)
        description = ffi.new(
            "gl_group *",
            {
                "id": number,
                "host_count": len(hosts),
                "member_count": len(members),
                "hosts": c_hosts,
                "members": c_members,
                "pair": pair,
                "from": ranks[0],
                "to": ranks[-1],
                "algorithms": [
                    ALGORITHMS["direct" if pair else site.algorithm(1 << size, hosts, 0.0)] for size in sizes
                ],
            },
        )
        with site.shards[number % len(site.shards)].locked() as exchange:
            if lib.gl_exchange_group(exchange, description):
                raise AgentError(f"{name}: out of memory")
        site.numbers[int(lib.GL_FIRST_GROUP) + number] = f"a collective of {name}"
        site.hosts[int(lib.GL_FIRST_GROUP) + number] = hosts
        return number


def _named(ranks: list[int]) -> str:
    """The ranks, or of many the first ones and a digest of all: names go to rank 0, and into each heartbeat."""
    if len(ranks) <= 8:
        return str(ranks)
    return f"{ranks[:4]}... of {len(ranks)} ({hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]})"
