# SPDX-License-Identifier: Apache-2.0
"""What hosts and other clients do does not keep a controller from its answers, nor from its session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc, rpc_code

from bench.harness.wires import Wires, compiled
from tests.gradlane_switch import flooding
from tests.gradlane_switch.flooding import CLONED, CPU, DIGEST, LEARNED, PUNTED, Flood, station
from tests.gradlane_switch.switch_process import Controller, Process, admin
from tests.support.needs import needs_root
from tests.support.paths import ROOT

PORTS = 4
STATIONS = 20_000
PROMISED = 0.05  # s
WANTED = p4r.Entity(table_entry=p4r.TableEntry(table_id=station(1).table_entry.table_id))


class Heard:
    """What came on a controller's stream. Digests are acknowledged."""

    def __init__(self, controller: Controller) -> None:
        self.counts = dict.fromkeys(("packet", "digest", "arbitration"), 0)
        self.ended: Exception | None = None
        self._controller = controller
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for message in self._controller.stream:
                kind = message.WhichOneof("update")
                self.counts[kind] += 1
                if kind == "digest":
                    ack = p4r.DigestListAck(digest_id=DIGEST, list_id=message.digest.list_id)
                    self._controller.send(p4r.StreamMessageRequest(digest_ack=ack))
        except grpc.RpcError as error:
            self.ended = error


@pytest.fixture
def made(tmp_path: Path) -> Iterator[tuple[Process, Controller]]:
    """A switch without interfaces that runs the program, and its controller."""
    program, p4info = flooding.write_files(tmp_path)
    flags = ("--program", str(program), "--p4info", str(p4info), "--cpu-port", str(CPU))
    with Process(*flags, "--admin", str(tmp_path / "admin")) as process, Controller(process.address, 1) as controller:
        controller.arbitrate()
        yield process, controller


def times(action: Callable[[], object], seconds: float) -> list[float]:
    """How long it took each time, in order of length."""
    found: list[float] = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.perf_counter()
        action()
        found.append(time.perf_counter() - began)
    return sorted(found)


def one_entry(controller: Controller, number: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """Reads an entry with its counter; and changes it."""
    entity = station(number)
    wanted = p4r.Entity(
        table_entry=p4r.TableEntry(table_id=entity.table_entry.table_id, match=entity.table_entry.match)
    )
    wanted.table_entry.counter_data.SetInParent()
    change = p4r.Update(type=p4r.Update.MODIFY, entity=entity)

    def read() -> None:
        [found] = controller.read(wanted)
        assert found.table_entry.match == entity.table_entry.match

    return read, lambda: controller.write(change)


@needs_root
@pytest.mark.alone
def test_a_flood_that_the_program_tells_of_delays_no_answer_and_ends_no_session(tmp_path: Path) -> None:
    program, p4info = flooding.write_files(tmp_path)
    flags = ["--program", str(program), "--p4info", str(p4info), "--cpu-port", str(CPU), "--admin", f"{tmp_path}/admin"]
    for number in range(1, PORTS + 1):
        flags += ["-i", f"{number}@switch-{number}"]
    with ExitStack() as stack:
        stack.enter_context(flooding.priority())
        wires = stack.enter_context(Wires(PORTS))
        sender = compiled(ROOT / "bench" / "switch" / "switch_load.c", tmp_path)
        inside = ("ip", "netns", "exec", wires.switch)
        process = stack.enter_context(Process(*flags, prefix=inside, address=f"unix:{tmp_path}/p4runtime"))
        controller = stack.enter_context(Controller(process.address, 1))
        controller.arbitrate()
        wanted = flooding.digest_entry(max_list_size=64, max_timeout_ns=10**8, ack_timeout_ns=10**9)
        controller.insert(*flooding.kind_entries(), wanted, *(station(number) for number in range(1, STATIONS)))
        heard = Heard(controller)
        names = [f"host-{number}" for number in range(1, PORTS + 1)]
        before, began = wires.frames(), time.monotonic()
        for kind, varied in ((PUNTED, False), (CLONED, False), (LEARNED, False), (LEARNED, True)):
            stack.enter_context(Flood(sender, wires.hosts, names, kind, varied=varied))
        read, write = one_entry(controller, 77)
        slow = {"read": times(read, 2.0), "write": times(write, 2.0)}
        seconds = time.monotonic() - began
        sent = sum(wires.frames()[number][0] - before[number][0] for number in before)
        assert {name: found[int(len(found) * 0.99)] for name, found in slow.items() if not _kept(found)} == {}
        assert sent / seconds > 20_000
        controller.send(p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate(**_identity(controller))))
        end = time.monotonic() + 10
        while not heard.counts["arbitration"]:
            assert time.monotonic() < end, "no answer to an arbitration update"
            time.sleep(0.01)
        assert heard.ended is None
        assert min(heard.counts["packet"], heard.counts["digest"]) > 20
        lost = admin(tmp_path / "admin", {"op": "program"})["program"]
        assert lost["packets"] > heard.counts["packet"]
        assert lost["digests"] > 0


def _kept(found: list[float]) -> bool:
    return found[int(len(found) * 0.99)] <= PROMISED


def _identity(controller: Controller) -> dict[str, Any]:
    return {"device_id": controller.device_id, "election_id": controller.identity["election_id"]}


@pytest.mark.alone
def test_a_read_and_a_write_behind_ten_wildcard_reads_and_a_large_write_answer_at_once(
    made: tuple[Process, Controller],
) -> None:
    process, controller = made
    controller.insert(*(station(number) for number in range(1, STATIONS)))
    read, _ = one_entry(controller, 77)
    with Controller(process.address, 1, role="other") as other, ExitStack() as stack:
        other.arbitrate()
        _, write = one_entry(other, 78)
        stub: Any = p4r_grpc.P4RuntimeStub(stack.enter_context(grpc.insecure_channel(process.address)))
        reads = [stub.Read(p4r.ReadRequest(device_id=1, entities=[WANTED])) for _ in range(10)]
        for answers in reads:
            next(answers)
        large = p4r.WriteRequest(**controller.identity)
        for number in range(STATIONS, 2 * STATIONS):
            large.updates.add(type=p4r.Update.INSERT, entity=station(number))
        stub.Write.future(large)
        for name, found in {"read": times(read, 0.5), "write": times(write, 0.5)}.items():
            assert found[int(len(found) * 0.99)] <= PROMISED, name
        for answers in reads:
            answers.cancel()


def test_a_read_goes_on_while_others_write(made: tuple[Process, Controller]) -> None:
    _, controller = made
    controller.insert(*(station(number) for number in range(1, 2000)))
    answers = controller.stub.Read(p4r.ReadRequest(device_id=1, entities=[WANTED]))
    found = list(next(answers).entities)
    removed = [p4r.Update(type=p4r.Update.DELETE, entity=station(number)) for number in range(1, 1900)]
    controller.write(*removed)
    found += [entity for answer in answers for entity in answer.entities]
    values = [int.from_bytes(entity.table_entry.match[0].exact.value, "big") for entity in found]
    assert len(values) == len(set(values))
    assert set(range(1900, 2000)) <= set(values) <= set(range(1, 2000))


# Too many


def test_streams_without_arbitration_make_room_for_others(made: tuple[Process, Controller]) -> None:
    process, controller = made
    strangers: list[Any] = []
    with grpc.insecure_channel(process.address) as channel:
        stub: Any = p4r_grpc.P4RuntimeStub(channel)
        silent = threading.Event()

        def nothing() -> Iterator[Any]:
            silent.wait()
            yield from ()

        for _ in range(70):
            strangers.append(stub.StreamChannel(nothing()))
        with pytest.raises(grpc.RpcError) as caught:
            next(strangers[0])
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "send one first" in error.details()
        silent.set()
    assert controller.arbitrate().status.code == rpc_code.OK


def test_too_many_requests_that_wait_are_refused(made: tuple[Process, Controller]) -> None:
    _, controller = made
    controller.insert(*(station(number) for number in range(1, 500)))
    updates = [p4r.Update(type=p4r.Update.MODIFY, entity=station(number)) for number in range(1, 500)]
    large = p4r.WriteRequest(**controller.identity, updates=updates)
    codes = [call.code() for call in [controller.stub.Write.future(large) for _ in range(150)]]
    assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert codes.count(grpc.StatusCode.OK) >= 64
    controller.write(updates[0])
