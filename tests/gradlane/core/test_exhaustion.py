# SPDX-License-Identifier: Apache-2.0
"""Memory that is out ends the job that met it, by name, and no other; and nothing is sent that could wait."""

import subprocess
from pathlib import Path

from tests.gradlane.core.core_programs import HERE, build
from tests.support.effort import thorough


def test_every_allocation_may_fail(tmp_path: Path) -> None:
    parts = ("exhaustion.c", "exhaustion_processes.c", "exhaustion_sums.c", "exhaustion_absence.c")
    sources = [HERE / name for name in parts]
    program = build(tmp_path, sources, "malloc", "calloc", "realloc", "aligned_alloc")
    every = "1" if thorough() else "3"  # of the engine's; all of what processes, sums and late workers allocate
    subprocess.run([program, every], check=True, timeout=120)


def test_a_full_socket_is_not_waited_for(tmp_path: Path) -> None:
    subprocess.run([build(tmp_path, [HERE / "full_socket.c"], "sendmmsg")], check=True)


def test_a_full_batch_has_room_for_a_short_datagram(tmp_path: Path) -> None:
    subprocess.run([build(tmp_path, [HERE / "messages.c"], "sendmmsg")], check=True)
