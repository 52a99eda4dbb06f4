# SPDX-License-Identifier: Apache-2.0
"""Egress runs when a packet leaves its queue, and sees what it found there. At 8 Mbit/s a byte takes a microsecond."""

import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gradlane_switch import PortError, Switch
from gradlane_switch.dataplane import pcap
from gradlane_switch.dataplane.forwarding import DataPlane
from gradlane_switch.dataplane.port_config import changed, parse_port
from gradlane_switch.dataplane.replay import TimedFrame
from gradlane_switch.p4runtime.files import read_p4info
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock, Losses
from tests.gradlane_switch.compiled_programs import group, load, session
from tests.gradlane_switch.replaying import balance, queue_balance
from tests.support.paths import SWITCH_PROGRAMS

US = 1000  # ns
DROP, CLONE, RECIRCULATE, GROW, MULTICAST, CLONE_ON = 1, 2, 3, 4, 5, 6
_LAYOUT = struct.Struct("!BBBBIBBBB8I")


@dataclass(frozen=True)
class Note:
    """What egress wrote in a packet."""

    port: int
    queue: int
    op: int
    argument: int
    number: int
    version: int
    kind: int
    priority: int
    rid: int
    length: int
    entered: int
    enqueued: int
    waited: int
    left: int
    ahead: int
    behind: int
    turn: int


def packet(number: int, op: int = 0, *, port: int = 2, queue: int = 0, argument: int = 0, size: int = 1000) -> bytes:
    """A frame of `size` bytes to a port and queue, and what egress is to do with it."""
    return struct.pack("!BBBBI", port, queue, op, argument, number).ljust(size, b"\0")


def read(frame: bytes) -> Note:
    """The note in a frame that egress has not lengthened."""
    return Note(*_LAYOUT.unpack_from(frame))


def notes(sent: list[TimedFrame], port: int = 2) -> dict[int, Note]:
    """By number, those that left at a port; none of them twice."""
    found = [read(frame) for _, number, frame in sent if number == port]
    assert len({note.number for note in found}) == len(found)
    return {note.number: note for note in found}


def departures(sent: list[TimedFrame], port: int = 2) -> list[tuple[int, int]]:
    """(time in us, number) of what left at a port."""
    return [(time // US, read(frame).number) for time, number, frame in sent if number == port]


@pytest.fixture
def switch() -> Switch:
    return load("queues")


def at_once(*frames: bytes, time: int = 0) -> list[TimedFrame]:
    return [(time, 1, frame) for frame in frames]


def test_a_packet_that_waits_so_many_microseconds_says_so_and_how_many_wait_with_it(switch: Switch) -> None:
    sent = switch.replay(at_once(*(packet(n) for n in range(5)), time=7_000 * US), {1: "", 2: "rate=8mbit"}).sent
    assert departures(sent) == [(7_000 + 1000 * n, n) for n in range(5)]
    for n, note in notes(sent).items():
        assert (note.entered, note.enqueued, note.left) == (7_000, 7_000, 7_000 + 1000 * n)
        assert (note.waited, note.ahead, note.behind) == (1000 * n, max(n - 1, 0), 4 - n if n else 0)
        assert note.length == 1000


def test_times_are_whole_microseconds_of_the_clock(switch: Switch) -> None:
    packets = [(999, 1, packet(0)), (1500, 1, packet(1))]
    note = notes(switch.replay(packets, {1: "", 2: "rate=8mbit"}).sent)[1]
    # It waits from 1.5 us to 1000.999 us.
    assert (note.enqueued, note.left, note.waited) == (1, 1000, 999)


def test_each_queue_has_a_depth_of_its_own_and_egress_reads_the_priority(switch: Switch) -> None:
    frames = [packet(n, queue=(0, 7)[n % 2]) for n in range(8)]
    sent = switch.replay(at_once(*frames), {1: "", 2: "rate=8mbit"}).sent
    assert [number for _, number in departures(sent)] == [0, 1, 3, 5, 7, 2, 4, 6]
    found = notes(sent)
    assert [found[n].priority for n in range(8)] == [0, 7] * 4
    assert [found[n].ahead for n in (0, 1, 3, 5, 7)] == [0, 0, 1, 2, 3]
    assert [found[n].behind for n in (0, 1, 3, 5, 7, 2, 4, 6)] == [0, 3, 2, 1, 0, 2, 1, 0]


def test_a_program_that_has_qid_reads_the_queue() -> None:
    """v1model.p4 as it comes has no name for it; a program may add one, which simple_switch then fills in."""
    text = json.dumps(json.loads((SWITCH_PROGRAMS / "queues.json").read_text()))
    changes = [
        ('["priority", 3, false]', '["priority", 3, false], ["qid", 8, false]'),
        ('"field_aliases": [', '"field_aliases": [["queueing_metadata.qid", ["standard_metadata", "qid"]], '),
        ('"value": ["standard_metadata", "enq_qdepth"]', '"value": ["standard_metadata", "qid"]'),
    ]
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    switch = Switch(Pipeline(text.encode(), read_p4info(SWITCH_PROGRAMS / "queues.p4info.txtpb"), Lock()))
    sent = switch.replay(at_once(*(packet(n, queue=n) for n in range(8))), {1: "", 2: "rate=8mbit"}).sent
    assert [note.ahead for _, note in sorted(notes(sent).items())] == list(range(8))


def test_a_packet_that_egress_drops_does_not_occupy_the_wire(switch: Switch) -> None:
    frames = [packet(0), packet(1, DROP), packet(2, DROP), packet(3), packet(4, DROP)]
    done = switch.replay(at_once(*frames), {1: "", 2: "rate=8mbit"})
    assert departures(done.sent) == [(0, 0), (1000, 3)]
    assert notes(done.sent)[3].waited == 1000
    queue = done.ports[2]["queues"][0]
    assert (queue["enqueued"]["packets"], queue["ended"]["packets"]) == (5, 3)
    assert done.ports[1]["drops"]["program"]["packets"] == 3
    assert balance(list(done.ports.values())) == 0


@pytest.mark.parametrize("weights", ["strict", "1:1:1:1:1:1:1:1"])
def test_the_wire_carries_what_egress_made_and_the_buffer_what_it_got(switch: Switch, weights: str) -> None:
    frames = [packet(n, GROW) for n in range(3)]
    done = switch.replay(at_once(*frames), {1: "", 2: f"rate=8mbit,buffer=2000B,weights={weights}"})
    assert [(time // US, len(frame)) for time, _, frame in done.sent] == [(0, 1100), (1100, 1100), (2200, 1100)]
    assert done.ports[2]["max_depth_bytes"] == 2000


def test_a_clone_of_egress_is_queued_on_its_own_when_the_original_leaves(switch: Switch) -> None:
    switch.insert(session(5, [(2, 7), (3, 9)]))
    frames = [packet(0), packet(1, CLONE, argument=5), packet(2)]
    done = switch.replay(at_once(*frames), {1: "", 2: "rate=8mbit", 3: ""})
    # The clone to the same port comes behind what waits there.
    assert departures(done.sent) == [(0, 0), (1000, 1), (2000, 2), (3000, 1)]
    [clone] = [note for _, port, frame in done.sent if port == 2 and (note := read(frame)).kind == 2]
    assert (clone.rid, clone.enqueued, clone.waited, clone.left) == (7, 1000, 2000, 3000)
    assert (clone.ahead, clone.behind, clone.entered) == (1, 0, 0)
    other = notes(done.sent, 3)[1]
    assert (other.rid, other.enqueued, other.waited, other.ahead) == (9, 1000, 0, 0)
    assert balance(list(done.ports.values())) == 0


def test_a_packet_is_recirculated_when_it_leaves_its_queue_and_waits_again(switch: Switch) -> None:
    frames = [packet(0), packet(1, RECIRCULATE), packet(2)]
    done = switch.replay(at_once(*frames), {1: "", 2: "rate=8mbit"})
    assert departures(done.sent) == [(0, 0), (1000, 2), (2000, 1)]
    note = notes(done.sent)[1]
    assert (note.enqueued, note.waited, note.ahead) == (1000, 1000, 1)
    assert done.ports[2]["queues"][0]["ended"]["packets"] == 1
    assert balance(list(done.ports.values())) == 0


def test_replicas_of_a_group_wait_each_at_its_port(switch: Switch) -> None:
    switch.insert(group(5, [(2, 7), (3, 9), (3, 10)]))
    done = switch.replay(
        at_once(packet(0), packet(1, MULTICAST, argument=5)), {1: "", 2: "rate=8mbit", 3: "rate=4mbit"}
    )
    waited = [(port, note.rid, note.waited) for _, port, frame in done.sent if (note := read(frame)).number]
    assert waited == [(3, 9, 0), (2, 7, 1000), (3, 10, 2000)]
    assert balance(list(done.ports.values())) == 0


def test_copies_without_end_end_also_where_they_wait(switch: Switch) -> None:
    switch.insert(session(5, [(2, 7)]))
    frames = at_once(packet(0, CLONE_ON, argument=5), packet(1, size=100), packet(2, size=100))
    done = switch.replay(frames, {1: "", 2: "rate=8gbit"})
    assert len(done.sent) == 4096 + 3
    assert switch.losses == Losses(out_of_range=0, endless=1, packets=0, digests=0, log=0, assertions=0)
    assert balance(list(done.ports.values())) == 0


def test_egress_sees_packets_in_order_of_time_over_all_ports(switch: Switch) -> None:
    frames = [packet(n, port=2 + n % 3, queue=n % 8, size=100 + 21 * n) for n in range(60)]
    ports = {number: f"rate={rate}mbit,buffer=1MB" for number, rate in ((2, 8), (3, 11), (4, 5))}
    done = switch.replay(at_once(*frames), {1: "", **ports})
    found = sorted((read(frame) for _, _, frame in done.sent), key=lambda note: note.turn)
    assert [note.turn for note in found] == list(range(60))
    assert [note.left for note in found] == sorted(note.left for note in found)
    assert len({note.left for note in found}) > 50


def test_a_port_that_is_not_there_or_down_has_no_queue_but_egress(switch: Switch) -> None:
    frames = [packet(0, RECIRCULATE, port=9), packet(1, RECIRCULATE), packet(2, port=9), packet(3)]
    done = switch.replay(at_once(*frames), {1: "", 2: "rate=8mbit,up=no"})
    assert done.sent == []
    assert switch.read_register("seen", 0) == 6
    assert done.ports[1]["drops"]["no_port"]["packets"] == 2
    assert done.ports[2]["drops"]["tx_down"]["packets"] == 2
    assert balance(list(done.ports.values())) == 0


def test_without_ports_a_packet_meets_an_empty_queue(switch: Switch) -> None:
    switch.now = 5_000 * US + 999
    [(port, frame)] = switch.process(1, packet(1, queue=3))
    note = read(frame)
    assert (port, note.entered, note.enqueued, note.left) == (2, 5000, 5000, 5000)
    assert (note.waited, note.ahead, note.behind, note.priority) == (0, 0, 0, 3)


def test_a_port_that_a_replay_does_not_have_is_refused(switch: Switch) -> None:
    with pytest.raises(PortError, match="there is no port 7: there are 1, 2"):
        switch.replay([(0, 7, packet(0))], {1: "", 2: ""})


# While packets wait


class Lab:
    """Port 1 in, port 2 out at 8 Mbit/s, in files; the program can be changed between packets."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipeline = load("queues").pipeline
        self.lock = pipeline.state.lock
        words = [f"{number}@pcap:,{folder}/{number}.pcap{',rate=8mbit' * (number == 2)}" for number in (1, 2, 3)]
        self.dataplane = DataPlane(self.lock, [parse_port(text) for text in words], 0)
        self.first = pipeline
        self.dataplane.install(pipeline)

    def second(self) -> Pipeline:
        """The program with another version number."""
        text = (SWITCH_PROGRAMS / "queues.json").read_text()
        assert text.count('"value" : "0xa5"') == 1
        info = read_p4info(SWITCH_PROGRAMS / "queues.p4info.txtpb")
        return Pipeline(text.replace('"value" : "0xa5"', '"value" : "0x5a"').encode(), info, self.lock)

    def ports(self) -> dict[int, dict[str, Any]]:
        return {item["port"]: item for item in self.dataplane.statistics()}

    def left(self, port: int = 2) -> list[TimedFrame]:
        return [(time, port, frame) for time, frame in pcap.frames(self.folder / f"{port}.pcap")]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.dataplane.stop()


def test_packets_that_wait_when_the_program_is_replaced_go_through_its_egress_and_keep_their_place(lab: Lab) -> None:
    pipelines: list[Pipeline] = []

    def packets() -> Iterator[TimedFrame]:
        yield from at_once(*(packet(n) for n in range(4)), packet(4, DROP), packet(5, RECIRCULATE), packet(6))
        for _ in range(2):
            pipelines.append(lab.second())
            lab.dataplane.install(pipelines[-1])
        yield from at_once(*(packet(n) for n in range(7, 9)), time=1500 * US)

    lab.dataplane.feed(packets())
    sent = lab.left()
    assert departures(sent) == [(1000 * place, n) for place, n in enumerate((0, 1, 2, 3, 6, 5, 7, 8))]
    found = notes(sent)
    assert [found[n].version for n in (0, 1, 2, 3, 6, 5, 7, 8)] == [0xA5] * 6 + [0x5A] * 2
    # They met egress when the program was replaced, and left later.
    assert [found[n].left for n in (1, 2, 3, 6, 5)] == [0] * 5
    assert (found[1].behind, found[2].behind) == (5, 5)
    assert (found[8].waited, found[8].ahead) == (5500, 5)
    assert Switch(lab.first).read_register("seen", 0) == 8
    assert [Switch(item).read_register("seen", 0) for item in pipelines] == [0, 2]
    assert balance(list(lab.ports().values())) == 0


def test_clones_that_egress_makes_when_the_program_is_replaced_are_queued_or_dropped(lab: Lab) -> None:
    Switch(lab.first).insert(session(5, [(2, 7), (3, 9)]))
    lab.dataplane.configure(2, changed(lab.dataplane.config(2), "buffer", "3500B"))

    def packets() -> Iterator[TimedFrame]:
        yield from at_once(packet(0), packet(1, CLONE, argument=5), packet(2, CLONE, argument=5))
        yield from at_once(packet(9, port=9), time=400 * US)
        lab.dataplane.install(lab.second())
        yield from at_once(packet(3), time=500 * US)

    lab.dataplane.feed(packets())
    sent = lab.left()
    # Of the clones to port 2 one found room, and packet 3 none.
    assert departures(sent) == [(0, 0), (1000, 1), (2000, 2), (3000, 1)]
    assert departures(lab.left(3), 3) == [(400, 1), (400, 2)]
    ports = lab.ports()
    assert ports[2]["queues"][0]["tail_dropped"]["packets"] == 2
    assert ports[2]["max_depth_bytes"] == 3000
    assert balance(list(ports.values())) == 0


@pytest.mark.parametrize("seed", range(6))
def test_whatever_egress_does_and_whatever_changes_nothing_is_lost_uncounted(lab: Lab, seed: int) -> None:
    draw = random.Random(seed)
    choices = {
        "rate": ("1mbit", "50mbit", "unlimited"),
        "buffer": ("2kB", "20kB"),
        "weights": ("strict", "1:2:3:4:5:6:7:8"),
        "up": ("yes", "yes", "no"),
        "ecn": ("1kB", "off"),
        "loss": ("0.1", "0"),
        "delay": ("1ms", "0ms"),
        "duplicate": ("0.2", "0"),
    }
    made: list[Pipeline] = [lab.first]

    def prepare(pipeline: Pipeline) -> None:
        Switch(pipeline).insert(session(5, [(2, 7), (3, 9), (9, 1)]))
        Switch(pipeline).insert(group(5, [(3, 1), (2, 2), (2, 3)]))

    def packets() -> Iterator[TimedFrame]:
        for n in range(1500):
            op = draw.choice((0, 0, 0, DROP, CLONE, RECIRCULATE, GROW, MULTICAST))
            size, port = draw.randint(48, 1500), draw.choice((2, 2, 2, 3, 9))
            yield n * 200 * US, 1, packet(n, op, port=port, queue=draw.randrange(8), argument=5, size=size)
            if n % 40 == 0:
                key, port = draw.choice(list(choices)), draw.choice((2, 3))
                config = changed(lab.dataplane.config(port), key, draw.choice(choices[key]))
                lab.dataplane.configure(port, config)
            if n % 100 == 50:
                made.append(lab.second())
                prepare(made[-1])
                lab.dataplane.install(made[-1])

    prepare(lab.first)
    lab.dataplane.feed(packets())
    ports = lab.ports()
    assert balance(list(ports.values())) == queue_balance(ports[2]) == queue_balance(ports[3]) == 0
    assert [port["depth_bytes"] for port in ports.values()] == [0, 0, 0]
    assert ports[2]["queues"][3]["ended"]["packets"] > 0


def test_what_waits_when_the_port_goes_down_is_counted_and_never_meets_egress(lab: Lab) -> None:
    def packets() -> Iterator[TimedFrame]:
        yield from at_once(*(packet(n) for n in range(4)))
        yield from at_once(packet(4, port=3), time=1500 * US)
        lab.dataplane.configure(2, changed(lab.dataplane.config(2), "up", "no"))

    lab.dataplane.feed(packets())
    assert departures(lab.left()) == [(0, 0), (1000, 1)]
    assert Switch(lab.first).read_register("seen", 0) == 3
    ports = lab.ports()
    assert ports[2]["queues"][0]["flushed"]["packets"] == 2
    assert balance(list(ports.values())) == 0
