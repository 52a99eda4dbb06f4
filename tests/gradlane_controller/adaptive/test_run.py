# SPDX-License-Identifier: Apache-2.0
"""A running controller tunes a job by what its switch counts: what the switch holds changes, is told, and is undone."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from tests.gradlane_controller.controller_process import Running
from tests.gradlane_controller.running_switches import Target, Wires
from tests.gradlane_controller.test_run import command
from tests.gradlane_controller.test_run_of_sums import SCHEMA
from tests.gradlane_controller.texts import fabric_text, job_text
from tests.support.agents import until
from tests.support.effort import only_thorough
from tests.support.gradlane_packets import H1, H2, gradient

pytestmark = pytest.mark.long

QUEUE = SCHEMA.meters["virtual_queue"].id
FRAMES, FRAME_BYTES = 140, 1400  # of a burst: they fit the buffer of 400 kB, and MOST drops some of them yet
SECONDS = 2.0  # from burst to burst, so that most of the rate is not used
AT_ONCE = 20  # frames that a socket surely holds
PLAIN, TWICE, MOST = (40_000, 80_000), (80_000, 160_000), (160_000, 320_000)
BOUNDS = "[adaptive]\ninterval = 5\nleast_threshold = 0.05\nmost_threshold = 0.4\n"


def fabric(target: Target, bounds: str = BOUNDS) -> str:
    text = fabric_text(target.address, target.kind).replace('rate = "100mbit"', 'rate = "1mbit"')
    text = text.replace("yellow = 0.25", "yellow = 0.1").replace("red = 0.5", "red = 0.2")
    return text.replace('buffer = "64kB"', 'buffer = "400kB"') + bounds


JOB = job_text().replace('rate = "100mbit"', 'rate = "1mbit"')


class Bursts:
    """Of a job's droppable slices from h1 to h2, one message each, in which all may be dropped."""

    def __init__(self, wires: Wires) -> None:
        self._wires, self._end = wires, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        message = 0
        while not self._end.wait(SECONDS):
            message += 1
            for number in range(FRAMES):
                header = {"message": message, "slice": number, "slices": FRAMES, "budget": FRAMES}
                self._wires.send(H1.port, gradient(H1, H2, frame_bytes=FRAME_BYTES, magnitude=0, layer=1, **header))
                if number % AT_ONCE == 0:
                    time.sleep(0.002)

    def close(self) -> None:
        self._end.set()
        self._thread.join(60)


@pytest.fixture
def bursts(target: Target) -> Iterator[Callable[[], Bursts]]:
    started: list[Bursts] = []

    def start() -> Bursts:
        started.append(Bursts(target.wires))
        return started[-1]

    yield start
    for each in started:
        each.close()


def held(target: Target, port: int) -> tuple[int, int]:
    """Yellow and red of a port, as the switch itself says."""
    request = p4r.ReadRequest(device_id=1)
    request.entities.add().meter_entry.CopyFrom(p4r.MeterEntry(meter_id=QUEUE, index=p4r.Index(index=port)))
    with grpc.insecure_channel(target.address) as channel:
        (answer,) = p4r_grpc.P4RuntimeStub(channel).Read(request)
    config = answer.entities[0].meter_entry.config
    return config.cburst, config.pburst


def tuning(it: Running) -> dict[str, Any]:
    (found,) = it.ask("GET", "/adaptive")[1]["jobs"]
    return found


def events(it: Running) -> list[dict[str, Any]]:
    return it.ask("GET", "/events?kind=tuning")[1]["items"]


def seen(it: Running) -> object:
    """What there is, if it is not tuned."""
    return it.ask("GET", "/counters"), it.ask("GET", "/adaptive"), events(it), it.said


def dropped(it: Running) -> int:
    reasons = it.ask("GET", "/counters")[1]["reasons"]
    return reasons["dropped_yellow"]["packets"] + reasons["dropped_red"]["packets"]


def test_drops_at_idle_ports_raise_the_threshold_at_the_switch_and_that_is_undone(
    target: Target, run_controller: Callable[..., Running], bursts: Callable[[], Bursts]
) -> None:
    it = run_controller(fabric(target), JOB)
    it.wait_for("ready:", 60)
    assert it.ask("GET", "/adaptive")[1]["bounds"] == {
        "interval": 5.0,
        "threshold": [0.05, 0.4],
        "droppable": None,
        "tolerance": None,
    }
    assert held(target, H2.port) == PLAIN
    bursts()
    until(lambda: held(target, H2.port) == MOST, lambda: seen(it))
    assert held(target, H1.port) == MOST
    assert held(target, 3) == PLAIN, "the job does not send there"
    assert dropped(it) > 0
    until(lambda: tuning(it)["state"] == "at rest", lambda: seen(it))
    shown = tuning(it)
    assert (shown["threshold"], shown["protection"], shown["tolerance"]) == (2, 0, 0)
    assert shown["text"] == "thresholds x 4"
    until(lambda: len(events(it)) == 2)
    first, second = events(it)
    assert first["subject"] == "demo"
    assert (first["data"]["before"]["threshold"], first["data"]["after"]["threshold"]) == (0, 1)
    assert (second["data"]["before"]["threshold"], second["data"]["after"]["threshold"]) == (1, 2)
    assert "of its packets were dropped, and no port of its was fuller than" in first["text"]
    live = it.ask("GET", "/state")[1]["jobs"]
    assert live[0]["tuning"]["text"] == "thresholds x 4"
    assert "thresholds x 4" in command("tuning", *it.access).stdout

    assert it.ask("POST", "/adaptive/nobody/undo")[0] == 404
    assert command("tuning", "undo", "demo", *it.access).stdout == "demo: thresholds x 2, held\n"
    until(lambda: held(target, H2.port) == TWICE)
    assert it.end() == 0
    again = run_controller(fabric(target), JOB)  # of the same store
    again.wait_for("ready:", 60)
    assert (tuning(again)["threshold"], tuning(again)["state"]) == (1, "held")
    assert held(target, H2.port) == TWICE
    status, answer = again.ask("POST", "/adaptive/demo/undo")
    assert (status, answer["text"], answer["undoable"]) == (200, "as its file", 0)
    until(lambda: held(target, H2.port) == PLAIN)
    status, answer = again.ask("POST", "/adaptive/demo/undo")
    assert status == 409
    assert "there is nothing to undo" in answer["error"]
    until(lambda: len(events(again)) == 4)  # they are written down soon after
    before = dropped(again)
    until(lambda: dropped(again) > before + FRAMES)  # what tuned it before goes on
    time.sleep(12)  # two intervals, in each of which it would be tuned
    assert (len(events(again)), held(target, H2.port)) == (4, PLAIN)
    assert again.ask("POST", "/adaptive/demo/resume")[0] == 200
    until(lambda: held(target, H2.port) != PLAIN, lambda: seen(again))


@pytest.mark.parametrize(
    "target",
    ["gradlane-switch", pytest.param("simple_switch_grpc", marks=only_thorough("the other test has BMv2, too"))],
    indirect=True,
)
def test_without_the_table_nothing_is_tuned_and_nothing_remains(
    target: Target, run_controller: Callable[..., Running], bursts: Callable[[], Bursts]
) -> None:
    it = run_controller(fabric(target), JOB)
    it.wait_for("ready:", 60)
    bursts()
    until(lambda: held(target, H2.port) == MOST, lambda: seen(it))
    assert it.end() == 0
    off = run_controller(fabric(target, ""), JOB)
    off.wait_for("ready:", 60)
    assert held(target, H2.port) == PLAIN
    assert off.ask("GET", "/adaptive")[1] == {"bounds": None, "jobs": []}
    status, answer = off.ask("POST", "/adaptive/demo/undo")
    assert status == 409
    assert "has no [adaptive], so no job is tuned" in answer["error"]
    before = dropped(off)
    until(lambda: dropped(off) > before)
    time.sleep(12)
    assert held(target, H2.port) == PLAIN
    assert "no [adaptive]" in command("tuning", *off.access).stdout
