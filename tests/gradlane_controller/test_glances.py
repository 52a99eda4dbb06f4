# SPDX-License-Identifier: Apache-2.0
"""Who looks at counters every few seconds: what has counted is read each time, of many jobs what has not a few at a
time. What is right is what the switch was told to have counted."""

import asyncio
from collections import Counter, defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from gradlane_controller.desired.plan import Plan
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import SwitchAddress
from gradlane_controller.policy import Numbers
from gradlane_controller.session.convergences import Convergences
from gradlane_controller.session.counters import LOOKED_AT, Glances, SwitchCounters
from gradlane_controller.session.fleet import Fleet
from tests.gradlane_controller.controller_thread import PIPELINE, ControllerThread
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text

JOBS = 3 * LOOKED_AT
ROUND = 4  # glances until all were looked at: of that many jobs, and of packets of none
DECISIONS = PIPELINE.schema.counters["decisions"].id


def test_a_glance_finds_all_that_was_counted_before_and_soon_what_is_new(fake_switch, tmp_path: Path) -> None:
    jobs = [job_text(f"j{n}", n, base=256 * (n - 1), mask=255) for n in range(1, JOBS + 1)]
    it = ControllerThread(tmp_path, fabric_text(fake_switch.address), *jobs)
    try:
        it.until(lambda: it.switch()["ready"])
        glances = Glances()

        def glance() -> dict[str | None, int]:
            packets: dict[str | None, int] = defaultdict(int)
            fake_switch.read_cells.clear()
            for row in it.do(it.it.counters, glances).decisions:
                packets[row.job] += row.packets
            asked.append(sum(counter == DECISIONS for counter, _ in list(fake_switch.read_cells)))
            return packets

        asked: list[int] = []
        counted = {None: 5, "j1": 7, f"j{JOBS}": 9}
        for job, packets in counted.items():
            number = 0 if job is None else it.it.plan.numbers.indices[it.it.plan.jobs[job].id]
            fake_switch.counters[DECISIONS, number << 11 | 3] = packets, 1000 * packets
        for _ in range(ROUND):
            found = glance()
        assert found == counted
        for more in range(1, 2 * ROUND):  # each of them is known, and new in each
            for key, (packets, octets) in list(fake_switch.counters.items()):
                fake_switch.counters[key] = packets + 1, octets
            assert glance() == {job: packets + more for job, packets in counted.items()}
        every = max(Counter(index >> 11 for _, index in list(fake_switch.read_cells)).values())  # cells of a job
        assert set(asked) <= {LOOKED_AT * every + known for known in range(len(counted) + 1)}
        counted = {job: packets + more for job, packets in counted.items()}
        index = next(iter(fake_switch.counters))
        fake_switch.counters[index[0], index[1] + 64] = 1, 100  # of a kind that is new
        counted[None] += 1
        assert any(glance() == counted for _ in range(ROUND))
        fake_switch.counters.clear()  # as after a restart
        assert glance() == {}
        assert {row.job for row in it.do(it.it.counters).decisions} == set()
    finally:
        it.close()


def test_few_switches_are_glanced_at_together() -> None:
    """The answers of all together would keep the event loop from what is urgent."""
    now, most = 0, 0

    async def execute(_: object) -> SwitchCounters:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return SwitchCounters("s", [], [], [], [])

    def make(_: SwitchAddress) -> Any:
        return SimpleNamespace(ready=True, connection=SimpleNamespace(execute=execute))

    fabric = fabric_file.parse(leafspine_text(spines=10), "f")
    fleet = Fleet(make, Convergences())
    fleet.follow(fabric.switches)
    asyncio.run(fleet.counters(Plan(fabric, {}, Numbers(), {}, {}), Glances()))
    assert most == 4
    asyncio.run(fleet.counters(Plan(fabric, {}, Numbers(), {}, {})))
    assert most == len(fabric.switches), "who asks for all waits for it"
