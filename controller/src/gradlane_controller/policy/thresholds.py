# SPDX-License-Identifier: Apache-2.0
"""From which queue lengths on a port is congested."""

from gradlane.job import Job, headers, largest_slice
from gradlane_controller.network.fabric import DERIVED_YELLOW, FULL_FRAME, Fabric, LinkPort, Port

MOST_DELAY = 0.0025
"""Seconds that a slice may wait behind a virtual queue that is not yet yellow: more adds delay and no throughput."""
LEAST_FRAMES = 4
"""Full frames that a virtual queue may hold at any rate: senders are not paced to the single frame."""
ETHERNET_HEADER = 14
USUAL_PACKET = 1500  # where the agents find the size of slices themselves


def frame_bytes(job: Job) -> int:
    """Of a job's full slice, on the wire."""
    slice_bytes = job.transport.slice_bytes or largest_slice(USUAL_PACKET, job.family)
    return slice_bytes + headers(job.family) + ETHERNET_HEADER


def moved_thresholds(fabric: Fabric, port: Port | LinkPort, doublings: int, frame: int) -> tuple[int, int]:
    """As `thresholds`, so many times doubled (negative: halved), within the bounds of the fabric's [adaptive], which
    include what they are without that. Yellow holds a `frame` (bytes), and red is no more than the buffer."""
    yellow, red = thresholds(fabric, port)
    if doublings == 0 or fabric.adaptive is None or fabric.adaptive.threshold is None:
        return yellow, red
    room = port.buffer // fabric.pipes_of(port.switch)
    least, most = (int(room * part) for part in fabric.adaptive.threshold)
    moved = min(max(int(yellow * 2.0**doublings), min(max(least, frame), yellow)), max(most, yellow))
    return moved, max(moved, min(moved * red // yellow, max(room, red)))


def thresholds(fabric: Fabric, port: Port | LinkPort) -> tuple[int, int]:
    """The lengths in bytes from which the virtual queue is yellow and red: of each pipe, an equal part of the port's.

    Where the fabric file states none: a quarter and a half of the buffer, so that what is droppable goes while a burst
    of what is not still fits; of a buffer that is deep for its rate no more than takes MOST_DELAY to send.
    bench/training/thresholds.py measures that this is on the plateau.
    """
    pipes = fabric.pipes_of(port.switch)
    if fabric.thresholds is not None:
        stated = fabric.thresholds
        return int(port.buffer * stated.yellow / pipes), int(port.buffer * stated.red / pipes)
    least, most = LEAST_FRAMES * FULL_FRAME, int(port.rate / 8 * MOST_DELAY / pipes)
    yellow = min(int(port.buffer * DERIVED_YELLOW / pipes), max(least, most))
    return yellow, 2 * yellow
