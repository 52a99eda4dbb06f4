# SPDX-License-Identifier: Apache-2.0
"""One switch of a fabric does what it likes: it harms itself alone."""

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from finsy.p4client import P4Client
from finsy.proto import p4r

from gradlane_controller.errors import SwitchError
from gradlane_controller.session import bounds, connection
from gradlane_controller.session.connection import describe
from tests.gradlane_controller.controller_thread import PIPELINE, ControllerThread
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.texts import job_text, leafspine_text

PORT_POLICIES = PIPELINE.schema.tables["port_policies"].id
JOBS = PIPELINE.schema.tables["jobs"].id
DIGEST = PIPELINE.schema.digests["guard_violation_t"].id


class HostileSwitch(FakeSwitch):
    """Answers reads with `answer`, if that is given; sends `flood` on its streams; does not read them if `deaf`."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[p4r.ReadRequest], Iterator[p4r.ReadResponse]] | None = None
        self.flood: Callable[[], p4r.StreamMessageResponse] | None = None
        self.flooded = 0
        self.reads = 0
        self.deaf = False
        self.refuse_reads = False
        self.answered = threading.Event()

    def Read(self, request, context):
        self.reads += 1
        if self.refuse_reads:
            context.abort(grpc.StatusCode.PERMISSION_DENIED, "\x1b[2J no\n" + "x" * 5000)
        if self.answer is not None:
            self.answered.set()
            yield from self.answer(request)
        else:
            yield from super().Read(request, context)

    def StreamChannel(self, requests, context):
        for answer in super().StreamChannel(self._once(requests) if self.deaf else requests, context):
            yield answer
            while self.flood is not None and context.is_active():
                self.flooded += 1
                yield self.flood()

    def _once(self, requests):
        """The first request; then nothing is taken."""
        yield next(requests)
        self.stopped = threading.Event()
        self.stopped.wait()

    def speak(self) -> None:
        """Sends something on every stream, so that a flood begins."""
        with self._lock:
            self._tell_all()


@pytest.fixture
def switches() -> Iterator[list[HostileSwitch]]:
    made = [HostileSwitch() for _ in range(4)]
    for each in made:
        each.start()
    yield made
    for each in made:
        each.flood = each.answer = None
        if each.deaf and hasattr(each, "stopped"):
            each.stopped.set()
        each.stop()


@pytest.fixture
def start(switches: list[HostileSwitch], tmp_path: Path) -> Iterator[Callable[..., ControllerThread]]:
    """Starts a controller of all four, with a job at two leaves."""
    started: list[ControllerThread] = []

    def begin(**options: Any) -> ControllerThread:
        text = leafspine_text(addresses=[switch.address for switch in switches])
        started.append(ControllerThread(tmp_path, text, job_text(hosts=(1, 3)), **options))
        return started[-1]

    yield begin
    for each in started:
        each.close()


def all_ready(controller: ControllerThread) -> bool:
    return controller.do(controller.it.status)["ready"]


def unknown_table(_request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
    yield p4r.ReadResponse(entities=[p4r.Entity(table_entry=p4r.TableEntry(table_id=0x02FFFFFF))])


def endless(_request: p4r.ReadRequest) -> Iterator[p4r.ReadResponse]:
    entry = p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=0x12000001, index=p4r.Index(index=5)))
    entry.counter_entry.data.packet_count = 1
    many = p4r.ReadResponse(entities=[entry] * 4096)
    yield from itertools.repeat(many, 1000)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(unknown_table, "sent what can't be understood"), (endless, "answers a read with ")],
)
def test_wrong_answers_to_reads_end_the_session_of_that_switch_alone(
    switches: list[HostileSwitch],
    start: Callable[..., ControllerThread],
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    reason: str,
) -> None:
    monkeypatch.setattr(bounds, "MAX_ENTITIES", 20_000)
    it = start()
    it.until(lambda: all_ready(it))
    switches[3].answer = answer
    found = it.do(partial(it.it.preview, [], files=True, live=True))["switches"]
    assert [(switch["name"], switch["changes"]) for switch in found if switch["problem"]] == [("spine2", [])]
    assert it.do(it.it.counters).away == ["spine2"]
    # It is asked every two seconds.
    it.until(lambda: reason in it.switch("spine2")["problem"])
    assert [it.switch(name)["ready"] for name in ("leaf1", "leaf2", "spine1")] == [True] * 3
    it.do(it.it.put_job, job_text("other", 2, hosts=(2, 4), base=4096))
    switches[3].answer = None
    it.until(lambda: all_ready(it))


def test_entities_that_nobody_asked_for_are_named_in_a_plan(
    switches: list[HostileSwitch], start: Callable[..., ControllerThread]
) -> None:
    it = start()
    it.until(lambda: all_ready(it))
    switches[3].answer = lambda request: itertools.islice(endless(request), 1)
    found = it.do(partial(it.it.preview, [], files=True, live=True))["switches"]
    switches[3].answer = None
    problems = {switch["name"]: switch["problem"] for switch in found}
    assert "sent what can't be understood" in problems.pop("spine2")
    assert set(problems.values()) == {""}


def test_a_switch_that_begins_to_refuse_after_the_start_ends_nothing(
    switches: list[HostileSwitch], start: Callable[..., ControllerThread]
) -> None:
    switches[3].refuse_reads = True
    it = start()
    it.do(it.it.wait_until_ready)
    problems: list[str] = []

    def refused() -> bool:  # it is asked again and again
        problems.append(it.switch("spine2")["problem"])
        return "refused: PERMISSION_DENIED: ?[2J no xxx" in problems[-1]

    it.until(refused)
    assert len(problems[-1]) < 1200
    switches[3].refuse_reads = False
    it.until(lambda: all_ready(it))


def test_a_switch_that_does_not_take_what_it_is_sent_is_given_up_and_links_are_still_checked(
    switches: list[HostileSwitch],
    start: Callable[..., ControllerThread],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(bounds, "SEND_SECONDS", 0.5)
    sent: list[str] = []
    spine = switches[3]
    spine.deaf = True
    it = start(check_links=True)
    managed = it.it._managed_switches
    it.until(lambda: managed["leaf1"].ready and managed["spine2"].connection.primary)

    def fill() -> None:  # frames are lost while others are being sent
        managed["spine2"].send([(1, bytes(9000))] * 2000)

    def given_up() -> bool:
        it.do(fill)
        return "does not take what it is sent" in caplog.text

    def count(name: str) -> int:
        return sum(name == each for each in sent)

    begin = it.it._links.begin

    def frames(*, whole: bool):
        found = begin(whole=whole)
        sent.extend(found)
        return found

    monkeypatch.setattr(it.it._links, "begin", frames)
    it.until(given_up)
    before = count("leaf1")
    it.until(lambda: count("leaf1") > before + 3)  # it still goes round


def arp(payload: bytes = b"\xff" * 12 + b"\x08\x06" + bytes(50)) -> p4r.StreamMessageResponse:
    message = p4r.StreamMessageResponse()
    message.packet.payload = payload
    for number, value in ((1, b"\x01"), (2, b"\x08"), (3, b"\x00")):
        message.packet.metadata.add(metadata_id=number, value=value)
    return message


def violations() -> p4r.StreamMessageResponse:
    message = p4r.StreamMessageResponse()
    message.digest.digest_id = DIGEST
    for number in range(64):
        members = message.digest.data.add().struct.members
        for value in (b"\x01", b"\x07", bytes([number + 1])):
            members.add(bitstring=value)
    return message


def error() -> p4r.StreamMessageResponse:
    return p4r.StreamMessageResponse(error=p4r.StreamError(canonical_code=2, message="x" * 60_000))


@pytest.mark.parametrize("turns", range(6))
def test_who_sends_to_a_switch_can_be_cancelled_in_every_turn(monkeypatch: pytest.MonkeyPatch, turns: int) -> None:
    """A flood of digests is acknowledged all the time, also while the session ends."""

    async def play() -> None:
        waits, taken = asyncio.Event(), asyncio.Event()

        async def take(*_: Any) -> None:
            waits.set()
            await taken.wait()

        monkeypatch.setattr(P4Client, "send", take)
        client = bounds.BoundedClient("127.0.0.1:1", None)
        client._sending = asyncio.Lock()
        task = asyncio.ensure_future(client.send(p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate())))
        await waits.wait()
        taken.set()
        for _ in range(turns):
            await asyncio.sleep(0)
        too_late = not task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled() or too_late

    asyncio.run(play())


@pytest.mark.parametrize("message", [arp, violations, error])
def test_a_flood_is_held_back_and_the_session_stays(
    switches: list[HostileSwitch],
    start: Callable[..., ControllerThread],
    monkeypatch: pytest.MonkeyPatch,
    message: Callable[[], p4r.StreamMessageResponse],
) -> None:
    """No matter how fast a switch sends: as many messages are taken as the bound says, and heartbeats go on."""
    monkeypatch.setattr(bounds, "MESSAGES_PER_SECOND", 100.0)
    monkeypatch.setattr(bounds, "BURST_SECONDS", 0.0)
    monkeypatch.setattr(connection, "HEARTBEAT_SECONDS", 0.1)
    taken: list[float] = []
    receive = P4Client.receive

    async def count(client: P4Client) -> p4r.StreamMessageResponse:
        found = await receive(client)
        taken.append(time.monotonic())
        return found

    monkeypatch.setattr(P4Client, "receive", count)
    it = start()
    it.until(lambda: all_ready(it))
    said = message()
    switches[3].flood = lambda: said
    switches[3].speak()
    it.until(lambda: len(taken) > 10)
    begin, reads = time.monotonic(), switches[3].reads
    before = len(taken)
    it.until(lambda: switches[3].reads > reads + 10)  # heartbeats
    assert it.switch("spine2")["ready"]
    assert len(taken) - before <= (time.monotonic() - begin) * 100 + 2
    it.do(it.it.put_job, job_text("other", 2, hosts=(2, 4), base=4096))


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (p4r.StreamMessageResponse(), ""),
        (p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=b"x")), "KeyError: 'ingress_port'"),
        (p4r.StreamMessageResponse(digest=p4r.DigestList(digest_id=DIGEST, data=[{"bitstring": b"x"}])), ""),
        (
            p4r.StreamMessageResponse(error=p4r.StreamError(message="x" * bounds.MAX_MESSAGE)),
            "sends a message of 65544",
        ),
        (arp(bytes(200_000)), "sends a message of 200029 bytes; the most is 65536"),
    ],
)
def test_garbage_on_a_stream_harms_its_sender_alone(
    switches: list[HostileSwitch],
    start: Callable[..., ControllerThread],
    caplog: pytest.LogCaptureFixture,
    message: p4r.StreamMessageResponse,
    reason: str,
) -> None:
    it = start()
    it.until(lambda: all_ready(it))
    kept = [it.it._managed_switches[name].connection._switch for name in ("leaf1", "leaf2", "spine1")]

    def thrice() -> p4r.StreamMessageResponse:
        if switches[3].flooded == 3:
            switches[3].flood = None
        return message

    switches[3].flood = thrice
    switches[3].speak()
    it.until(lambda: switches[3].flood is None and reason in caplog.text and all_ready(it))
    assert [it.it._managed_switches[name].connection._switch for name in ("leaf1", "leaf2", "spine1")] == kept
    assert it.failure is None


def test_what_a_switch_says_is_one_printable_line_of_bounded_length() -> None:
    text = describe(ValueError("\x1b[31mred\r\n\x00" + "y" * 10_000))
    assert text.startswith("sent what can't be understood: ValueError: ?[31mred ?yyy")
    assert text.isprintable()
    assert len(text) < 1100


@pytest.mark.parametrize(("entities", "size"), [(1, 1 << 16), (bounds.MAX_ENTITIES // 16 + 1, 0)])
def test_an_answer_to_a_read_has_a_size_and_so_many_entities(
    monkeypatch: pytest.MonkeyPatch, entities: int, size: int
) -> None:
    taken = 0

    async def answer(_client: P4Client, _request: p4r.ReadRequest) -> AsyncIterator[p4r.ReadResponse]:
        nonlocal taken
        it = p4r.Entity(table_entry=p4r.TableEntry(metadata=bytes(size)))
        while taken < 1000:
            taken += 1
            yield p4r.ReadResponse(entities=[it] * entities)

    async def read() -> None:
        async for _ in bounds.BoundedClient(("localhost", 1)).request_iter(p4r.ReadRequest()):
            pass

    monkeypatch.setattr(P4Client, "request_iter", answer)
    with pytest.raises(SwitchError, match="more than it can have"):
        asyncio.run(read())
    assert taken <= 1 + max(bounds.MAX_READ // (1 << 16), 16)


def test_messages_to_a_switch_go_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    at_work, most = 0, 0

    async def opened(_client: P4Client) -> None:
        pass

    async def sent(_client: P4Client, _message: p4r.StreamMessageRequest) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        await asyncio.sleep(0)
        at_work -= 1

    async def run() -> None:
        client = bounds.BoundedClient(("localhost", 1))
        await client.open()
        await asyncio.gather(
            *(client.send(p4r.StreamMessageRequest(arbitration=p4r.MasterArbitrationUpdate())) for _ in range(3))
        )

    monkeypatch.setattr(P4Client, "open", opened)
    monkeypatch.setattr(P4Client, "send", sent)
    asyncio.run(run())
    assert most == 1
