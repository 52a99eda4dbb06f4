# SPDX-License-Identifier: Apache-2.0
"""Several controllers of the same switches: one leads, and another one when it is gone."""

import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from finsy.proto import U128, p4r, p4r_grpc
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from gradlane_controller.session.arbitration import LEADERS
from gradlane_controller.session.connection import HEARTBEAT_SECONDS
from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.fake_switch import FakeSwitch
from tests.gradlane_controller.running_switches import Target
from tests.gradlane_controller.texts import fabric_text, job_text, leafspine_text
from tests.support.agents import pause
from tests.support.postgresql import BIN, Postgresql

pytestmark = pytest.mark.long

PATIENCE = 60.0
TAKEOVER_SECONDS = 3.0


@pytest.fixture
def switches(make_fake_switch) -> list[FakeSwitch]:
    return [make_fake_switch() for _ in range(4)]


@pytest.fixture
def start(run_controller) -> Callable[..., Running]:
    """Starts a controller that assumes that links work: nothing that fake switches are sent arrives anywhere."""

    def run(fabric: str, *jobs: str, more: tuple[str, ...] = ()) -> Running:
        return run_controller(fabric, *jobs, more=("--no-link-check", *more))

    return run


@pytest.fixture
def fabric(switches: list[FakeSwitch]) -> str:
    return leafspine_text(addresses=[switch.address for switch in switches])


@pytest.fixture
def server() -> Iterator[Postgresql]:
    if not (BIN / "initdb").exists():
        pytest.skip("Debian's postgresql (15) is not installed")
    it = Postgresql()
    try:
        it.start()
        yield it
    finally:
        it.close()


def lease_seconds(store: Path) -> float:
    """How long the lease in a SQLite store is still good."""
    with closing(sqlite3.connect(store)) as database:
        ((expires,),) = database.execute("SELECT expires FROM leadership")
    return expires - time.monotonic()


def leads(it: Running) -> bool:
    """It says so, and is primary at every switch."""
    status = it.ask("GET", "/status")[1]
    return status["controller"]["leader"] and all(switch["primary"] for switch in status["switches"])


def until(condition: Callable[[], bool], what: str = "", *involved: Running) -> float:
    """How long that takes, in seconds. Fails, with all that these controllers said, if it takes too long."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() > begun + PATIENCE:
            said = [f"{it.http}:\n" + "\n".join(it.said) for it in involved]
            pytest.fail("\n\n".join([what or "it takes too long", *said]))
        pause(begun)
    return time.monotonic() - begun


def leader(controllers: list[Running]) -> Running:
    """The one that leads, once there is one."""
    found: list[Running] = []

    def look() -> bool:
        found[:] = [it for it in controllers if it.process.poll() is None and leads(it)]
        assert len(found) <= 1
        return bool(found)

    until(look, "nobody leads")
    return found[0]


def check_writers(switches: list[FakeSwitch]) -> None:
    """Of those who wrote to a switch nobody came back after the next one had begun, and nobody wrote who only stands
    by."""
    for switch in switches:
        assert switch.writers == sorted(switch.writers)
        assert all(bid > LEADERS for bid in (*switch.writers, *switch.refused))


def test_of_three_one_leads_and_the_next_one_takes_over_without_a_write(
    switches: list[FakeSwitch], fabric: str, start: Callable[..., Running]
) -> None:
    controllers = [start(fabric, job_text(hosts=(1, 3)))]
    controllers[0].wait_for("ready:")
    controllers += [start(fabric, job_text(hosts=(1, 3))) for _ in range(2)]
    for it in controllers[1:]:
        it.wait_for("stands by")
    assert controllers[0].ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 200
    held, written = [dict(each.entities) for each in switches], [list(each.log) for each in switches]
    numbers: list[int] = []
    while len(controllers) > 1:
        first = leader(controllers)
        numbers.append(first.ask("GET", "/status")[1]["controller"]["number"])
        for it in controllers:
            if it is not first:
                status, answer = it.ask("DELETE", "/jobs/other")
                assert status == 503
                assert "stands by: " in answer["error"]
        first.end(signal.SIGKILL)
        controllers.remove(first)
        second = leader(controllers)
        until(lambda second=second: second.ask("GET", "/status")[1]["ready"])
        names = [job["name"] for job in second.ask("GET", "/status")[1]["jobs"]]
        assert names == ["demo", "other"]
        assert [each.log for each in switches] == written, "what was there is not written again"
    assert [each.entities for each in switches] == held
    assert numbers == sorted(set(numbers))
    assert controllers[0].ask("DELETE", "/jobs/other")[0] == 200
    check_writers(switches)


def test_a_clean_stop_gives_leadership_up_at_once(
    switches: list[FakeSwitch], fabric: str, start: Callable[..., Running]
) -> None:
    first = start(fabric, job_text(hosts=(1, 3)))
    first.wait_for("ready:")
    second = start(fabric, job_text(hosts=(1, 3)))
    second.wait_for("stands by")
    assert first.end() == 0
    line = second.wait_for("leads, as number 2")
    assert line
    until(lambda: leads(second))
    check_writers(switches)


def test_a_leader_that_was_paused_writes_nothing_when_it_goes_on(
    switches: list[FakeSwitch], fabric: str, start: Callable[..., Running]
) -> None:
    first = start(fabric, job_text(hosts=(1, 3)))
    first.wait_for("ready:")
    second = start(fabric, job_text(hosts=(1, 3)))
    second.wait_for("stands by")

    def ready() -> bool:
        return leads(second) and second.ask("GET", "/status")[1]["ready"]

    def knows_the_jobs() -> bool:
        return [job["name"] for job in first.ask("GET", "/status")[1]["jobs"]] == ["demo", "other"]

    for _ in range(2):
        first.process.send_signal(signal.SIGSTOP)
        until(ready, "nobody takes over", first, second)
        # What the first one would put right, if it still believed that it leads.
        assert second.ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 200
        held, writers = [dict(each.entities) for each in switches], [list(each.writers) for each in switches]
        first.process.send_signal(signal.SIGCONT)
        first.wait_for("leads no more")
        until(knows_the_jobs)
        assert not leads(first)
        assert leads(second)
        assert [dict(each.entities) for each in switches] == held
        assert [each.writers for each in switches] == writers
        assert second.ask("DELETE", "/jobs/other")[0] == 200
        first, second = second, first
    check_writers(switches)


def test_while_the_store_is_down_nobody_leads_and_then_somebody_does(
    switches: list[FakeSwitch], fabric: str, start: Callable[..., Running], server: Postgresql
) -> None:
    more = ("--store", server.make_database())
    controllers = [start(fabric, job_text(hosts=(1, 3)), more=more)]
    controllers[0].wait_for("ready:")
    controllers.append(start(fabric, job_text(hosts=(1, 3)), more=more))
    controllers[1].wait_for("stands by")
    assert controllers[0].ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 200
    held, written = [dict(each.entities) for each in switches], [list(each.log) for each in switches]
    for number, (down, up) in enumerate(
        [(server.stop, server.start), (server.pause, lambda: server.pause(resume=True))], 1
    ):
        down()
        until(lambda: not any(leads(it) for it in controllers), "it does not step down")
        said = controllers[0].ask("GET", "/status")[1]["controller"]
        assert not said["leader"]
        until(lambda: "store" in controllers[0].ask("GET", "/status")[1]["controller"]["who"])
        for it in controllers:
            status, answer = it.ask("POST", "/jobs", job_text("third", 3, hosts=(2, 4), base=8192))
            assert status == 503
            assert "stands by" in answer["error"]
        assert [each.log for each in switches] == written
        up()
        first = leader(controllers)
        until(lambda first=first: first.ask("GET", "/status")[1]["ready"])
        assert [job["name"] for job in first.ask("GET", "/status")[1]["jobs"]] == ["demo", "other"]
        shown = first.ask("GET", "/status")[1]["controller"]
        assert shown["number"] > number
        assert [dict(each.entities) for each in switches] == held
        assert [each.log for each in switches] == written
    assert leader(controllers).ask("POST", "/jobs", job_text("third", 3, hosts=(2, 4), base=8192))[0] == 200
    check_writers(switches)


class Stranger:
    """Another client of a switch, which bids by itself."""

    def __init__(self, address: str, bid: int) -> None:
        self._bids: list[p4r.StreamMessageRequest] = []
        self._end = threading.Event()
        self._channel = grpc.insecure_channel(address)
        update = p4r.MasterArbitrationUpdate(device_id=1, election_id=U128.encode(bid))
        self._bids.append(p4r.StreamMessageRequest(arbitration=update))
        self._answers = p4r_grpc.P4RuntimeStub(self._channel).StreamChannel(self._say())
        next(self._answers)

    def _say(self) -> Iterator[p4r.StreamMessageRequest]:
        yield from self._bids
        self._end.wait()

    def close(self) -> None:
        self._end.set()
        self._channel.close()


def test_who_is_outbid_at_most_switches_steps_down_and_comes_back_with_a_greater_number(
    switches: list[FakeSwitch], fabric: str, start: Callable[..., Running]
) -> None:
    it = start(fabric, job_text(hosts=(1, 3)))
    it.wait_for("ready:")
    strangers = [Stranger(switches[0].address, LEADERS + 1000)]
    it.wait_for("another client is primary")
    status = it.ask("GET", "/status")[1]
    assert status["controller"]["leader"], "it is one of four"
    assert [switch["primary"] for switch in status["switches"]] == [False, True, True, True]
    strangers += [Stranger(switch.address, LEADERS + 1000) for switch in switches[1:3]]
    it.wait_for("another client is primary at 3 of 4 switches: gives up")
    until(lambda: not it.ask("GET", "/status")[1]["controller"]["leader"])
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 503
    time.sleep(2.0)
    assert not it.ask("GET", "/status")[1]["controller"]["leader"], "it comes back only when they are gone"
    for stranger in strangers:
        stranger.close()
    until(lambda: leads(it))
    assert it.ask("GET", "/status")[1]["controller"]["number"] > 1000
    until(lambda: it.ask("GET", "/status")[1]["ready"])
    assert it.ask("POST", "/jobs", job_text("other", 2, hosts=(2, 4), base=4096))[0] == 200
    check_writers(switches)


def test_who_becomes_primary_at_a_switch_that_is_slow_to_load_its_program_waits_for_it(
    fake_switch: FakeSwitch, start: Callable[..., Running]
) -> None:
    fake_switch.load_seconds = 2 * HEARTBEAT_SECONDS + 1
    stranger = Stranger(fake_switch.address, LEADERS + 1000)
    it = start(fabric_text(fake_switch.address), job_text())
    it.wait_for("another client is primary")
    stranger.close()
    it.wait_for("ready:")
    assert not [line for line in it.said if "FAILED_PRECONDITION" in line]
    assert "VERIFY_AND_COMMIT" in fake_switch.log


@pytest.mark.timed
def test_a_take_over_loses_no_packet_and_takes_less_than_three_seconds(
    target: Target, start: Callable[..., Running], tmp_path: Path
) -> None:
    """A stream of UDP crosses the switch all the time. BMv2 makes the next stream primary by itself, and an id that is
    taken is refused; all the same one writes."""
    fabric = fabric_text(target.address, target.kind)
    controllers = [start(fabric, job_text())]
    controllers[0].wait_for("ready:", 60)
    assert controllers[0].ask("POST", "/jobs", job_text("other", 2, hosts=(3, 4), base=4096))[0] == 200
    controllers += [start(fabric, job_text()) for _ in range(2)]
    for it in controllers[1:]:
        it.wait_for("stands by")
    until(lambda: lease_seconds(tmp_path / "fabric.db") < TAKEOVER_SECONDS)  # of one who is not alone
    packet = Ether(src="02:00:00:00:01:02", dst="02:00:00:00:01:01") / IP(src="10.0.1.2", dst="10.0.2.2")
    frame = bytes(packet / UDP(sport=7, dport=8) / b"stream")
    sent: list[int] = []
    arrived: list[int] = []
    stop = threading.Event()

    def send() -> None:
        while not stop.wait(0.01):
            target.wires.send(1, frame + len(sent).to_bytes(4, "big"))
            sent.append(len(sent))

    def receive() -> None:  # at once, as the buffer of a socket is small
        while (found := target.wires.receive(3)) is not None or not stop.is_set():
            if found is not None and found[0] == 2:
                arrived.append(int.from_bytes(found[1][-4:], "big"))

    target.wires.send(1, frame + bytes(4))
    target.wires.expect(2, lambda it: UDP in it and it[UDP].dport == 8)
    threads = [threading.Thread(target=each) for each in (send, receive)]
    for each in threads:
        each.start()
    took: list[float] = []
    try:
        for _ in range(2):
            first = leader(controllers)
            first.end(signal.SIGKILL)
            controllers.remove(first)
            took.append(until(lambda: any(leads(it) for it in controllers)))
    finally:
        stop.set()
        for each in threads:
            each.join()
    print(f"take-overs on {target.kind}: {', '.join(f'{it:.2f} s' for it in took)}; {len(sent)} packets sent")
    assert arrived == sent
    assert len(sent) > 100
    assert max(took) < TAKEOVER_SECONDS
    assert [job["name"] for job in controllers[0].ask("GET", "/status")[1]["jobs"]] == ["demo", "other"]
