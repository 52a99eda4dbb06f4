# SPDX-License-Identifier: Apache-2.0
"""Gradlane's settings in a simulation: a job file as a user writes it, and what the agent makes of it for its
engines."""

from typing import Any

from gradlane import job as job_files
from gradlane.job.policy import MAX_LAYER, MAX_MAGNITUDE
from gradlane.job.racks import Racks
from gradlane.units import format_rate
from gradlane_sim.carriers import Gradlane
from gradlane_sim.specification import Fabric, Job, need

# As gradlane.datapath.engine has them, which can't be imported without the core.
MAX_WINDOW = 2048
MEMORY_BYTES = 2 << 30
# Needed first in the next forward pass, and served first.
FRONT_LAYERS = 2


def address(host: int) -> str:
    """As the program numbers hosts: 10.0.0.1 and on."""
    number = 0x0A000001 + host
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


def text(job: Job, fabric: Fabric, racks: Racks | None = None) -> str:
    """The job file. `racks`: of the workers, if it says in which they are."""
    carrier = job.carrier
    assert isinstance(carrier, Gradlane)
    lines = ["[job]", f'name = "job{job.id}"', f"id = {job.id}"]
    for rank, host in enumerate(job.members):
        kind = "worker" if rank < job.workers else "server"
        lines += [f"[[{kind}]]", f"rank = {rank}", f'host = "h{host}"', f'address = "{address(host)}"']
        lines += [f"rack = {racks.of[rank]}"] if racks and rank < job.workers else []
    port = fabric.links[job.members[0]]
    lines += ["[transport]", f'rate = "{format_rate(port.file_rate)}"', f'buffer = "{port.buffer}B"']
    lines += [f"slice_bytes = {carrier.slice_bytes}", f'collective = "{job.algorithm}"']
    lines += [f"oversubscription = {racks.oversubscription}"] if racks else []
    if job.weights:
        lines.append(f"ownership = {list(job.weights)}")
    if job.algorithm == "stragglar":
        lines.append(f"straggler = {job.workers - 1}")
    if job.algorithm == "switch":
        lines += [f'wire = "{carrier.lanes}"', f'multicast = "239.{1 + (job.id >> 8)}.{job.id & 255}.1"']
        lines += [f"sum_window = {carrier.sum_window}", f"sum_slots = {carrier.sum_slots}"]
    lines += ["[loss]", f"push = {carrier.push}", f"pull = {carrier.pull}"]
    lines += ["[slots]", f"base = {carrier.slot_base}", f"mask = {carrier.slots - 1}"]
    lines += ["[policy]", f"priority = {str(carrier.priority).lower()}", "yellow = 2", "red = 1"]
    lines.append(f'on_congestion = "{"trim" if carrier.trim else "drop"}"')
    for layers, queue_class in ((f"[0, {FRONT_LAYERS - 1}]", 6), (f"[{FRONT_LAYERS}, {MAX_LAYER}]", 5)):
        lines += ["[[policy.queue_classes]]", f"layers = {layers}", f"class = {queue_class}"]
    if carrier.push or carrier.pull:
        lines += _precedences(carrier.droppable)
    return "\n".join(lines) + "\n"


def _precedences(droppable: float) -> list[str]:
    """Three drop precedences: the smallest gradients go first."""
    need(0 < droppable <= 1, f"{droppable} of a message is droppable; it must be above 0, and at most 1")
    last = round(droppable * (MAX_MAGNITUDE + 1)) - 1
    third = last // 3
    lines: list[str] = []
    for (first, end), precedence in (((0, third), 3), ((third + 1, 2 * third), 2), ((2 * third + 1, last), 1)):
        lines += ["[[policy.drop_precedences]]", f"magnitudes = [{first}, {end}]", f"drop_precedence = {precedence}"]
    return lines


def parse(job: Job, fabric: Fabric, racks: Racks | None = None) -> job_files.Job:
    """Raises JobError."""
    return job_files.parse(text(job, fabric, racks), f"job {job.id}")


def carrier(parsed: job_files.Job, known: bool = False) -> dict[str, Any]:
    """What the agent tells its engine (gl_config), as the program reads it; `known`: as `Gradlane` has it."""
    policy, loss, how = parsed.policy, parsed.loss, parsed.transport
    losses = [(*row.layers, row.push, row.pull) for row in loss.classes]
    losses.append((0, MAX_LAYER, loss.push, loss.pull))
    classes = [(*row.layers, 0, MAX_MAGNITUDE, row.queue_class) for row in policy.queue_classes if policy.priority]
    found: dict[str, Any] = {
        "kind": "gradlane",
        "slice_bytes": how.slice_bytes,
        "losses": [[first, last, round(a * 1e6), round(b * 1e6)] for first, last, a, b in losses],
        "classes": [list(row) for row in classes],
        "precedences": [[*row.layers, *row.magnitudes, row.drop_precedence] for row in policy.drop_precedences],
        "window": max(1, min(MAX_WINDOW, (parsed.slots.mask + 1) >> (len(parsed.members) - 1).bit_length())),
        "rate": how.rate,
        "buffer": how.buffer,
        "memory": MEMORY_BYTES,
        "tag": how.tagging == "host",
        "racks": [] if parsed.racks is None else list(parsed.racks.of),
    }
    if parsed.sum_lanes is not None:
        assert parsed.sum_address is not None
        sums = {"lanes": int(parsed.sum_lanes), "slots": how.sum_slots, "window": how.sum_window, "known": known}
        found["sums"] = sums | {"group": int(parsed.sum_address)}
    return found
