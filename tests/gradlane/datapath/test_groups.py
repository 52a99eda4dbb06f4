# SPDX-License-Identifier: Apache-2.0
"""The names of groups, which travel between agents."""

import asyncio
import json
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

from gradlane import job
from gradlane.control.handshake import MAX_LINE
from gradlane.datapath.groups import Groups

HOSTS, PROCESSES = 256, 64
TEMPLATE = '[job]\nname = "wide"\nid = 1\n[transport]\nrate = "1gbit"\n'
WIDE = job.parse(job.fill(TEMPLATE, [(f"h{k}", f"10.0.{k}.1", PROCESSES) for k in range(HOSTS)]), "wide.toml")


def name_of(ranks: list[int], label: str = "") -> str:
    """What the group of these ranks is called, in the largest job that there may be."""
    asked: list[str] = []

    async def share(_: object, name: str, making: Coroutine[Any, Any, Any]) -> int:
        making.close()
        asked.append(name)
        return 0

    site: Any = SimpleNamespace(job=WIDE, rank=0, share=share, shards=[None])
    asyncio.run(Groups(site).join(0, {"ranks": ranks, "label": label, "pair": False}))
    return asked[0]


def test_a_group_of_all_processes_has_a_name_that_fits_into_a_line() -> None:
    everyone = list(range(HOSTS * PROCESSES))
    name = name_of(everyone, "\U0001f600" * 256)
    question = {"ask": 1 << 32, "question": {"kind": "group", "name": name, "shape": len(everyone)}}
    assert len(json.dumps(question)) < MAX_LINE
    waiting = {"waiting": f"a collective of {name}, step {1 << 32}"}
    assert len(json.dumps(waiting)) < MAX_LINE


def test_groups_of_other_ranks_or_labels_have_other_names() -> None:
    groups = [(list(range(n)), label) for n in (1, 64, 128, 192) for label in ("", "a")]
    groups.append(([*range(64), *range(128, 192)], ""))
    groups.append((list(range(0, 128, 2)), ""))
    assert len({name_of(ranks, label) for ranks, label in groups}) == len(groups)
