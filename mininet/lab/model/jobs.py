# SPDX-License-Identifier: Apache-2.0
"""The job file of an arm: what every Gradlane arm has in common, and what the arm changes in it."""

import copy
import hashlib
from typing import Any

from gradlane.units import format_rate
from lab.model.arms import ARMS
from lab.model.plan import FabricPlan

# Front layers are needed first in the next forward pass, so they are served first; small gradients are dropped first.
_POLICY: dict[str, Any] = {
    "priority": True,
    "queue_classes": [{"layers": [0, 1], "class": 6}, {"layers": [2, 65535], "class": 5}],
    "drop_precedences": [
        {"magnitudes": [0, 63], "drop_precedence": 3},
        {"magnitudes": [64, 127], "drop_precedence": 2},
        {"magnitudes": [128, 223], "drop_precedence": 1},
    ],
    "yellow": 2,
    "red": 1,
}


def document(arm_name: str, plan: FabricPlan, seed: int) -> dict[str, Any]:
    """The job file of a Gradlane arm on that fabric, before it is TOML."""
    arm = ARMS[arm_name]
    hosts = plan.of_role("worker") + (plan.of_role("server") if arm.servers else ())
    members = [{"rank": rank, "host": host.name, "address": host.address} for rank, host in enumerate(hosts)]
    job: dict[str, Any] = {
        "job": {
            "name": arm_name,
            "id": 1 + list(ARMS).index(arm_name),
            "key": _key(arm_name, seed),
        },
        "worker": members[: plan.workers],
        "transport": {
            "rate": format_rate(plan.rate),
            "buffer": f"{plan.buffer}B",
            "slice_bytes": 1432,
            "wire": arm.wire,
            "multicast": "239.1.0.1",
        },
        "loss": {"push": 0.03, "pull": 0.0},
        "policy": copy.deepcopy(_POLICY),
        "slots": {"base": 0, "mask": 4095},
    }
    if arm.servers:
        job["server"] = members[plan.workers :]
    for section, values in arm.job.items():
        job[section] = job.get(section, {}) | values
    return job


def _key(arm_name: str, seed: int) -> str:
    """Of the agents' control connections: another one for each arm and seed, so that no two runs meet."""
    return hashlib.sha256(f"{arm_name} {seed}".encode()).hexdigest()[:32]
