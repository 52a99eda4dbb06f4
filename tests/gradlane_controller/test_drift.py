# SPDX-License-Identifier: Apache-2.0
"""What other clients of a switch change is found, put right and said; and two controllers do not stay half primary."""

import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from finsy.proto import p4r

from gradlane_controller.session import connection, convergence, managed_switch
from gradlane_controller.session.convergence import Changes
from gradlane_controller.session.managed_switch import Mended
from tests.gradlane_controller.controller_thread import PIPELINE, ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text

VIRTUAL_QUEUE = PIPELINE.schema.meters["virtual_queue"].id
DSCP_CLASSES = PIPELINE.schema.tables["dscp_classes"].id


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., ControllerThread]]:
    """Starts a controller, each with a folder of its own, unless `folder` names one."""
    started: list[ControllerThread] = []

    def begin(fabric: str, *jobs: str, folder: str = "") -> ControllerThread:
        at = tmp_path / (folder or str(len(started)))
        at.mkdir(exist_ok=True)
        started.append(ControllerThread(at, fabric, *jobs))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def removed(switch: FakeSwitch) -> None:
    key = next(key for key, it in switch.entities.items() if it.table_entry.table_id == DSCP_CLASSES)
    del switch.entities[key]


def changed(switch: FakeSwitch) -> None:
    it = next(it for it in switch.entities.values() if it.meter_entry.meter_id == VIRTUAL_QUEUE)
    it.meter_entry.config.cir += 1


def added(switch: FakeSwitch) -> None:
    entry = p4r.Entity()
    group = entry.packet_replication_engine_entry.multicast_group_entry
    group.multicast_group_id = 77
    group.replicas.add(egress_port=1, instance=1)
    switch.put(entry)


@pytest.mark.parametrize(
    ("change", "part", "wrote"),
    [
        (removed, "dscp_classes", "INSERT table_entry"),
        (changed, "virtual_queue", "MODIFY meter_entry"),
        (added, "multicast_groups", "DELETE packet_replication_engine_entry"),
    ],
)
def test_what_another_client_changes_is_put_right_and_said(
    fake_switch: FakeSwitch,
    start: Callable[..., ControllerThread],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[FakeSwitch], None],
    part: str,
    wrote: str,
) -> None:
    monkeypatch.setattr(connection, "HEARTBEAT_SECONDS", 0.02)
    it = start(fabric_text(fake_switch.address), job_text())
    it.until(lambda: it.switch()["ready"])
    held = {key: p4r.Entity.FromString(entity.SerializeToString()) for key, entity in fake_switch.entities.items()}
    fake_switch.log.clear()
    # Not ready from the moment that it is found until it is written again.
    states: list[tuple[bool, str]] = []
    write = fake_switch._update

    def update(message: p4r.Update) -> p4r.Error:
        states.append((it.it._managed_switches["s1"].ready, it.it._managed_switches["s1"].problem))
        return write(message)

    monkeypatch.setattr(fake_switch, "_update", update)
    change(fake_switch)
    it.until(lambda: it.switch()["mended"] == {"times": 1, "entities": 1} and it.switch()["ready"])
    assert fake_switch.entities == held
    assert fake_switch.log == [wrote]
    assert states[0][0] is False
    assert f"does not hold what was written to {part}" in states[0][1]
    assert "another client changed what switch 's1'" in caplog.text


def test_a_switch_whose_state_is_right_is_only_read(
    fake_switch: FakeSwitch, start: Callable[..., ControllerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Part by part, few entities at a time: none again before all others, and some in each heartbeat, which begins with
    what the ports have counted."""
    monkeypatch.setattr(connection, "HEARTBEAT_SECONDS", 0.02)
    it = start(fabric_text(fake_switch.address), job_text())
    it.until(lambda: it.switch()["ready"])
    fake_switch.log.clear()
    requests: list[p4r.ReadRequest] = []
    read = fake_switch.Read

    def read_noted(request: p4r.ReadRequest, context: object) -> object:
        requests.append(request)
        return read(request, context)

    monkeypatch.setattr(fake_switch, "Read", read_noted)
    number = len(PIPELINE.schema.tables) + 1 + len(PIPELINE.schema.meters) + len(PIPELINE.schema.digests)
    fake_switch.stop()
    fake_switch.start()
    it.until(lambda: it.switch()["ready"] and len(requests) > 8 * number)
    last = requests[-4 * number :]
    of_ports = [all(entity.HasField("counter_entry") for entity in request.entities) for request in last]
    assert (True, True) not in itertools.pairwise(of_ports)
    assert sum(of_ports) >= 2
    reads = [request for request, is_of_ports in zip(last, of_ports, strict=True) if not is_of_ports]
    parts = [entity.SerializeToString(deterministic=True) for request in reads for entity in request.entities]
    assert len(set(parts)) == number
    assert parts[number:] == parts[:-number]
    expected = Counter(it.WhichOneof("entity") for it in fake_switch.entities.values())
    sizes = {meter.id: meter.size for meter in PIPELINE.schema.meters}
    for request in reads:
        kinds = Counter(entity.WhichOneof("entity") for entity in request.entities)
        tables = {entity.table_entry.table_id for entity in request.entities}
        asked = sum(
            it.table_entry.table_id in tables for it in fake_switch.entities.values() if it.table_entry.table_id
        )
        asked += sum(sizes.get(entity.meter_entry.meter_id, 0) for entity in request.entities)
        asked += expected["packet_replication_engine_entry"] * kinds["packet_replication_engine_entry"]
        assert len(request.entities) == 1 or asked <= managed_switch.AUDITED_AT_ONCE
    assert any(len(request.entities) > 1 for request in reads)
    assert fake_switch.log == []
    assert it.switch()["mended"] == {"times": 0, "entities": 0}


def test_a_change_is_written_without_reading_what_the_switch_holds_unless_that_is_another_clients(
    fake_switch: FakeSwitch, start: Callable[..., ControllerThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    it = start(fabric_text(fake_switch.address), job_text())
    it.until(lambda: it.switch()["ready"])
    held = {key: p4r.Entity.FromString(entity.SerializeToString()) for key, entity in fake_switch.entities.items()}
    reads: list[object] = []
    read = convergence.read_parts

    async def counted(switch: Any, some: Any) -> Any:
        reads.append(some)
        return await read(switch, some)

    monkeypatch.setattr(convergence, "read_parts", counted)
    other = job_text("other", 2, hosts=(1, 2), base=4096)
    it.do(it.it.put_job, other)
    assert fake_switch.entities != held
    it.do(it.it.delete_job, "other")
    assert fake_switch.entities == held
    assert reads == []
    it.do(it.it.put_job, other)
    removed_jobs = [key for key in fake_switch.entities if key not in held]
    del fake_switch.entities[removed_jobs[0]]  # the controller's own deletion is refused
    changed(fake_switch)
    it.do(it.it.delete_job, "other")
    assert fake_switch.entities == held
    assert reads


def test_the_log_is_not_filled_by_a_client_that_goes_on(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(managed_switch.time, "monotonic", lambda: now)
    it = Mended()
    with caplog.at_level(logging.WARNING):
        it.add("switch 'x'", Changes(0, 0, 0))
        for _ in range(100):
            it.add("switch 'x'", Changes(1, 0, 2))
        assert len(caplog.messages) == 1
        now = 60.0
        it.add("switch 'x'", Changes(1, 0, 0))
    assert caplog.messages[1].endswith(
        "put right: 1 inserted, 0 modified, 0 deleted; 100 times since this was last said"
    )
    assert (it.times, it.entities) == (101, 301)
