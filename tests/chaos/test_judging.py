# SPDX-License-Identifier: Apache-2.0
"""What a chaos run sees of relays, writes, jobs, entries and packets: each of its promises can be found broken."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

import grpc
import pytest
from finsy import Match, P4TableAction, P4TableEntry
from finsy.proto import U128, p4r, p4r_grpc

from gradlane_controller.desired.pipeline import DEFAULT_FOLDER, load
from gradlane_controller.network import fabric_file
from gradlane_controller.session.arbitration import LEADERS
from tests.chaos import entries, patience, written
from tests.chaos.jobs import Record
from tests.chaos.relay import Relay, Relays, Way
from tests.chaos.run import compare
from tests.chaos.traffic import Excused, Flow, Lost
from tests.chaos.written import Watcher, Write, broken
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import fabric_text, job_text


def write(controller: str, number: int, issued: float, code: int | None = 0, switch: str = "s1") -> Write:
    answered = None if code is None else issued + 0.01
    return Write(controller, switch, LEADERS + number, issued, loads=False, updates=1, answered=answered, code=code)


REFUSED = grpc.StatusCode.PERMISSION_DENIED.value[0]


@pytest.mark.parametrize(
    ("writes", "problems"),
    [
        ([write("a", 1, 0), write("a", 1, 1), write("b", 2, 2), write("a", 3, 3, switch="s2")], []),
        ([write("a", 1, 0), write("b", 2, 2), write("a", 1, 3, REFUSED)], []),
        ([write("a", 1, 0), write("b", 2, 2), write("a", 1, 3, None)], []),
        ([write("a", 1, 0), write("b", 2, 2, REFUSED), write("a", 1, 3)], []),
        ([write("a", 1, 0), write("b", 2, 2), write("a", 1, 3, switch="s2")], ["comes after"]),
        ([write("a", 1, 0), write("b", 2, 2, written.UNKNOWN), write("a", 1, 3, switch="s2")], ["comes after"]),
        ([write("a", 1, 0), write("b", 1, 2)], ["has the number of a"]),
        ([write("a", -5, 0)], ["who stands by"]),
        ([replace(write("a", 1, 0), answered=9), write("b", 2, 2)], ["s1 takes 1 updates by a"]),
    ],
)
def test_writes_of_two_at_a_time_are_found(writes: list[Write], problems: list[str]) -> None:
    found = broken(writes)
    assert len(found) == len(problems)
    assert all(problem in text for problem, text in zip(problems, found, strict=True))


@pytest.fixture
def relays() -> Iterator[Relays]:
    it = Relays()
    yield it
    it.close()


def test_a_relay_tells_which_writes_a_switch_has_taken(relays: Relays) -> None:
    switch, record = FakeSwitch(), written.Record()
    switch.start()
    relay = relays.add("to s1", switch.port, lambda: Watcher(record, "a", "s1"))
    try:
        with grpc.insecure_channel(f"127.0.0.1:{relay.port}") as channel:
            stub = p4r_grpc.P4RuntimeStub(channel)
            end = threading.Event()

            def bid() -> Iterator[p4r.StreamMessageRequest]:
                update = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(LEADERS + 7))
                yield p4r.StreamMessageRequest(arbitration=update)
                end.wait()

            session = stub.StreamChannel(bid())  # it ends with the last one who knows it
            next(session)
            for number, count in ((7, 1), (3, 2), (7, 300)):
                updates = [
                    p4r.Update(type=p4r.Update.INSERT, entity=p4r.Entity(table_entry=p4r.TableEntry(table_id=n + 1)))
                    for n in range(count)
                ]
                request = p4r.WriteRequest(device_id=1, election_id=U128.encode(LEADERS + number), updates=updates)
                with suppress(grpc.RpcError):
                    stub.Write(request)
            end.set()
            session.cancel()
    finally:
        switch.stop()
    found = [(it.election_id - LEADERS, it.updates, it.code, it.taken) for it in record.writes]
    assert found == [(7, 1, 0, True), (3, 2, REFUSED, False), (7, 300, written.UNKNOWN, True)]
    assert switch.writers == [LEADERS + 7] * 2
    assert switch.refused == [LEADERS + 3]


class Echo:
    """A server that sends back what comes."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                pass  # cut

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def connect(relays: Relays) -> Iterator[tuple[Relay, Callable[[], socket.socket]]]:
    echo = Echo()
    relay = relays.add("to an echo", echo.port)
    opened: list[socket.socket] = []

    def make() -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", relay.port), timeout=20))
        return opened[-1]

    yield relay, make
    for each in opened:
        each.close()
    echo.close()


def receive(connection: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size and (more := connection.recv(size - len(found))):
        found += more
    return found


Connect = tuple[Relay, Callable[[], socket.socket]]


def test_a_relay_passes_everything_on_and_the_end(relays: Relays, connect: Connect) -> None:
    _, make = connect
    one, data = make(), bytes(range(256)) * 4000
    threading.Thread(target=one.sendall, args=(data,)).start()
    assert receive(one, len(data)) == data
    one.shutdown(socket.SHUT_WR)
    assert one.recv(1) == b""


@pytest.mark.parametrize("way", list(Way))
def test_what_is_held_arrives_later(relays: Relays, connect: Connect, way: Way) -> None:
    relay, make = connect
    one = make()
    one.sendall(b"a")
    assert receive(one, 1) == b"a"
    relays.set(relay, held=frozenset((way,)))
    one.sendall(b"b")
    one.settimeout(0.3)
    with pytest.raises(TimeoutError):
        one.recv(1)
    one.settimeout(20)
    relays.heal(relay)
    assert receive(one, 1) == b"b"


def test_a_delay_delays_and_keeps_the_order(relays: Relays, connect: Connect) -> None:
    relay, make = connect
    one = make()
    relays.set(relay, delay=0.2)
    begun = time.monotonic()
    one.sendall(b"a")
    time.sleep(0.05)
    relays.set(relay, delay=0.0)
    one.sendall(b"b")
    assert receive(one, 2) == b"ab"
    assert time.monotonic() - begun >= 0.2


def test_cutting_resets_and_refuses_until_it_is_healed(relays: Relays, connect: Connect) -> None:
    relay, make = connect
    one = make()
    one.sendall(b"a")
    assert receive(one, 1) == b"a"
    relays.cut(relay, refuse=True)
    with pytest.raises(ConnectionResetError):
        one.recv(1)
    with pytest.raises(OSError, match="reset"):
        make().recv(1)
    relays.heal(relay)
    again = make()
    again.sendall(b"b")
    assert receive(again, 1) == b"b"


def test_a_connection_is_reset_after_so_many_bytes_once(relays: Relays, connect: Connect) -> None:
    relay, make = connect
    relays.set(relay, left=(Way.DOWN, 5))
    one = make()
    one.sendall(b"0123456789")
    assert receive(one, 5) == b"01234"
    with pytest.raises(ConnectionResetError):
        one.recv(1)
    again = make()
    again.sendall(b"0123456789")
    assert receive(again, 10) == b"0123456789"


def names(record: Record, *present: int) -> list[list[str]]:
    return [sorted(jobs) for jobs in record.possible(present)]


def test_jobs_are_those_that_were_acknowledged_and_maybe_those_that_are_unsure() -> None:
    record = Record({"demo": job_text()})
    assert names(record, 1) == [["demo"]]
    one, other = job_text("one", 2), job_text("one", 2, hosts=(3, 4))
    record.acknowledge("one", one)
    assert names(record, 1, 2) == [["demo", "one"]]
    record.unsure("one", other)
    assert len(names(record, 1, 2)) == 2
    record.unsure("one", None)
    assert names(record, 1) == [["demo"]]
    [found] = (jobs for jobs in record.possible([1, 2]) if [it.host for it in jobs["one"].workers] == ["h3", "h4"])
    record.settle(found)
    [jobs] = record.possible([1, 2])
    assert [it.host for it in jobs["one"].workers] == ["h3", "h4"]
    record.acknowledge("one", None)
    [jobs] = record.possible([1, 2])
    assert sorted(jobs) == ["demo"], "a job that is there though it was removed is not possible"


def test_two_changes_of_one_version_are_found() -> None:
    record = Record({})
    text = [job_text("shared", 9, hosts=hosts) for hosts in ((1, 2), (3, 4), (1, 3), (2, 4))]
    record.acknowledge_version("shared", text[0], 0, 5)
    record.unsure("shared", text[1], 5)
    assert len(names(record, 9)) == 2
    record.acknowledge_version("shared", text[2], 5, 7)
    assert len(names(record, 9)) == 1, "the version that it was for is gone"
    assert not record.broken
    record.acknowledge_version("shared", text[3], 5, 8)
    assert record.broken == ["job shared: two changes of version 5 were made: 7 and 8"]


def test_packets_that_are_lost_for_no_reason_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(1, 3, frozenset(("leaf1", "spine1")))
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    excused = Excused()
    excused.begin("spine1")
    now[0] = 105.0
    excused.begin("leaf2")
    excused.end()
    lost = [Lost(flow, n, at) for n, at in enumerate((90.0, 99.0, 104.0, 106.0))]
    assert [it.sent for it in excused.unexplained(lost)] == [90.0, 106.0]
    other = [replace(it, flow=Flow(1, 2, frozenset(("leaf1",)))) for it in lost]
    assert excused.unexplained(other) == other


def test_time_in_which_processes_wait_for_a_processor_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now, waiting = [100.0], {1: 5.0, 2: 7.0}
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def waited(_pids: Iterable[int]) -> dict[int, float]:
        return dict(waiting)

    monkeypatch.setattr(patience, "waited", waited)
    it = patience.Patience(2.0, lambda: waiting)
    for _ in range(18):
        now[0] += 1.0
        waiting[1] += 0.5
        waiting[2] += 0.4
        assert not it.is_over()
    now[0] += 0.1
    assert not it.is_over()
    now[0] += 0.2
    assert it.is_over()
    assert it.taken == pytest.approx(18.3)


def test_entries_that_are_missing_too_much_or_otherwise_are_found() -> None:
    schema = load(DEFAULT_FOLDER, "gradlane").schema
    fabric = fabric_file.parse(fabric_text(), "fabric.toml")

    def state_of(*jobs: str, numbers: dict[int, int]) -> entries.State:
        record = Record({str(n): text for n, text in enumerate(jobs)})
        [found] = record.possible(numbers)
        return entries.wanted(schema, fabric, found.values(), numbers)["s1"]

    one = state_of(job_text(), numbers={1: 1})
    assert compare(one, one) == []
    both = state_of(job_text(), job_text("other", 2, hosts=(3, 4), base=4096), numbers={1: 1, 2: 2})
    assert {what for what, _ in compare(one, both)} == {"lacks", "has another value in"}
    assert {what for what, _ in compare(both, one)} == {"has", "has another value in"}
    assert [what for what, _ in compare(one, state_of(job_text(), numbers={1: 9}))] == ["has another value in"]
    entry = P4TableEntry("jobs", match=Match(job=1), action=P4TableAction("unknown_job"))
    assert entries.indices(schema, [entry.encode(schema)]) == {1: 0}
