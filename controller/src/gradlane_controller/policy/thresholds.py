# SPDX-License-Identifier: Apache-2.0
"""From which queue lengths on a port is congested."""

from gradlane_controller.network.fabric import DERIVED_YELLOW, FULL_FRAME, Fabric, LinkPort, Port

MOST_DELAY = 0.0025
"""Seconds that a slice may wait behind a virtual queue that is not yet yellow: more adds delay and no throughput."""
LEAST_FRAMES = 4
"""Full frames that a virtual queue may hold at any rate: senders are not paced to the single frame."""


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
