# SPDX-License-Identifier: Apache-2.0
"""Queues, rates and links on the clock of pcap files: exact, to the nanosecond and the byte."""

import json
import random
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from google.protobuf import text_format
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from gradlane_switch import PortError
from gradlane_switch.dataplane import pcap
from tests.gradlane_switch.replaying import (
    SECOND,
    Packet,
    balance,
    frame,
    number,
    queue_balance,
    replay,
    steering,
    write_pcap,
)
from tests.gradlane_switch.small_programs import action, assign, field, load, p4info, program, table
from tests.gradlane_switch.switch_process import COMMAND
from tests.support import zygote
from tests.support.effort import tries


def numbers(packets: list[Packet]) -> list[int]:
    return [number(data) for _, data in packets]


def test_departures_follow_the_rate_to_the_nanosecond(tmp_path: Path) -> None:
    """As on a wire: at 7 Mbit/s a frame of 1000 bytes takes 8000/7 us, and the fractions add up."""
    packets = [(0, frame(2, 0, 1000, n)) for n in range(100)]
    out = replay(tmp_path, packets, "rate=7mbit,buffer=1MB").out[2]
    assert out == [(n * 8000 * 1000 // 7, data) for n, (_, data) in enumerate(packets)]


def test_without_a_rate_packets_leave_when_they_come(tmp_path: Path) -> None:
    packets = [(n * 1000, frame(2 + n % 2, n % 8, 60 + n, n)) for n in range(50)]
    result = replay(tmp_path, packets, "", "")
    assert result.out == {2: packets[::2], 3: packets[1::2]}
    assert balance(list(result.ports.values())) == 0


def test_port_0_is_a_port_like_any_other() -> None:
    run = action(0, "run", [], assign(field("standard_metadata", "egress_spec"), field("h", "port")))
    switch = load(program([("port", 8)], [run], [table(0, "t", [], [run], run)]))
    there, back = bytes([1]) + bytes(59), bytes([0]) + bytes(59)
    result = switch.replay([(0, 0, there), (1000, 1, back), (2000, 0, back)], {0: "rate=48mbit,buffer=64kB", 1: ""})
    assert result.sent == [(0, 1, there), (1000, 0, back), (11_000, 0, back)]
    assert [port["rx"]["packets"] for port in result.ports.values()] == [2, 1]


def test_a_frame_may_be_shorter_than_an_ethernet_header(tmp_path: Path) -> None:
    packets = [(n * 1000, bytes([2, 0, *range(n)])) for n in range(14)]
    assert replay(tmp_path, packets, "").out == {2: packets}


def overload(seconds: float, classes: dict[int, float], rate: int) -> list[Packet]:
    """Frames of random size at random times to port 2: each class offers its share of the rate in bit/s."""
    draw = random.Random(5)
    packets: list[Packet] = []
    for queue, share in classes.items():
        time = 0.0
        while time < seconds:
            size = draw.randint(60, 1514)
            packets.append((round(time * SECOND), frame(2, queue, size)))
            time += size * 8 / (rate * share) * draw.uniform(0.5, 1.5)
    packets.sort(key=lambda item: item[0])
    return [(time, frame(data[0], data[1], len(data), n)) for n, (time, data) in enumerate(packets)]


def test_at_twice_the_rate_the_top_class_loses_nothing_and_the_rate_is_exact(tmp_path: Path) -> None:
    rate, buffer = 100_000_000, 64_000
    packets = overload(1.2, {7: 0.5, 3: 0.75, 0: 0.75}, rate)
    result = replay(tmp_path, packets, f"rate=100mbit,buffer={buffer}B")
    port = result.ports[2]
    assert port["queues"][7]["tail_dropped"]["packets"] == 0
    sent_of_top = [n for n in numbers(result.out[2]) if packets[n][1][1] == 7]
    assert sent_of_top == [n for n, (_, data) in enumerate(packets) if data[1] == 7]
    # Every window of 1 s that begins after the queues have filled carries the rate, to a frame.
    start = 100_000_000
    window = [(time, data) for time, data in result.out[2] if start <= time < start + SECOND]
    assert sum(len(data) for _, data in window) * 8 == pytest.approx(rate, rel=0.0005)
    assert port["max_depth_bytes"] <= buffer
    assert deepest(packets, result.out[2]) <= buffer
    assert balance(list(result.ports.values())) == 0


def deepest(entered: list[Packet], left: list[Packet]) -> int:
    """Most bytes that waited at once, of packets that did leave."""
    kept = set(numbers(left))
    changes = [(time, 1, len(data)) for time, data in entered if number(data) in kept]
    changes += [(time, 0, -len(data)) for time, data in left]
    depth = most = 0
    for _, _, change in sorted(changes):
        depth += change
        most = max(most, depth)
    return most


def test_deficit_round_robin_shares_the_rate_by_weight(tmp_path: Path) -> None:
    """Classes that offer more than their share get it, whatever their frames' sizes; who offers less, gets it all."""
    weights = {0: 1, 1: 2, 2: 5, 3: 8}
    draw = random.Random(2)
    packets: list[Packet] = []
    for queue, size in ((0, 1514), (1, 300), (2, 1000)):
        packets += [(round(n * size * 8 * 10), frame(2, queue, size)) for n in range(100_000_000 // (size * 8))]
    packets += [(n * 1_000_000 + draw.randrange(1000), frame(2, 3, 100)) for n in range(1000)]
    packets.sort(key=lambda item: item[0])
    text = ":".join(str(weights.get(queue, 1)) for queue in range(8))
    result = replay(tmp_path, packets, f"rate=100mbit,buffer=200kB,weights={text}")
    shares = dict.fromkeys(range(4), 0)
    for time, data in result.out[2]:
        if SECOND // 10 <= time < SECOND:
            shares[data[1]] += len(data)
    assert result.ports[2]["queues"][3]["tail_dropped"]["packets"] == 0
    rest = sum(shares[queue] for queue in (0, 1, 2))
    for queue in (0, 1, 2):
        assert shares[queue] / rest == pytest.approx(weights[queue] / 8, rel=0.02)
    assert result.ports[2]["max_depth_bytes"] <= 200_000


def tagged(ecn: int, version: int, n: int) -> bytes:
    """An IP packet to port 2 with an ECN field."""
    ethernet = Ether(dst="02:00:00:00:00:00", src="02:00:00:00:00:09")
    header = IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB8 | ecn) if version == 4 else IPv6(tc=0xB8 | ecn)
    return bytes(ethernet / header / UDP(sport=n, dport=9) / Raw(bytes(900)))


@pytest.mark.parametrize("version", [4, 6])
def test_above_the_threshold_capable_packets_are_marked_and_others_not(tmp_path: Path, version: int) -> None:
    packets = [(0, tagged(n % 4, version, n)) for n in range(40)]
    result = replay(tmp_path, packets, "rate=1mbit,buffer=100kB,ecn=10kB")
    assert len(result.out[2]) == 40
    waits = 0  # The first packet leaves at once.
    marked = 0
    for n, (_, data) in enumerate(result.out[2]):
        waits += len(data) if n else 0
        parsed = Ether(data)
        ecn = parsed.tos & 3 if version == 4 else parsed.tc & 3
        expected = 3 if waits > 10_000 and n % 4 else n % 4
        assert ecn == expected
        marked += expected != n % 4
        # Scapy fills in a checksum that is not there: the one we got is what it should be.
        if version == 4:
            got = parsed[IP].chksum
            del parsed[IP].chksum
            assert Ether(bytes(parsed))[IP].chksum == got
        assert bytes(parsed[UDP]) == bytes(Ether(packets[n][1])[UDP])
    assert marked > 10
    assert result.ports[2]["queues"][0]["marked"]["packets"] == marked


def test_marking_looks_behind_vlan_tags_and_leaves_what_is_not_ip(tmp_path: Path) -> None:
    inner = IP(src="10.0.0.1", dst="10.0.0.2", tos=2) / UDP() / Raw(bytes(100))
    vlan = bytes(Ether(dst="02:00:00:00:00:00") / Dot1Q(vlan=5) / inner)
    odd = frame(2, 0, 60)
    short = bytes(Ether(dst="02:00:00:00:00:00", type=0x800)) + b"\x45\x02"
    packets = [(0, frame(2, 0, 500)), (0, vlan), (0, odd), (0, short)]
    out = replay(tmp_path, packets, "rate=1mbit,ecn=1B").out[2]
    assert Ether(out[1][1])[IP].tos == 3
    assert [data for _, data in out[2:]] == [odd, short]


STREAM = [(n * 100_000, frame(2, 0, 100, n)) for n in range(2000)]


def test_the_fate_of_the_nth_packet_depends_on_seed_and_n_alone(tmp_path: Path) -> None:
    """Neither on when it comes, nor on how long it is, nor on what else the link does."""

    def lost(packets: list[Packet], text: str, seed: int) -> set[int]:
        return set(range(2000)) - set(numbers(replay(tmp_path, packets, text, seed=seed).out[2]))

    first = lost(STREAM, "loss=0.1,burst-loss=0.01:0.2", 7)
    other = [(n * n, frame(2, 0, 60 + n % 900, n)) for n in range(2000)]
    assert lost(other, "loss=0.1,burst-loss=0.01:0.2,delay=1ms,jitter=1ms,duplicate=0.1,reorder=0.1", 7) == first
    assert lost(STREAM, "loss=0.1,burst-loss=0.01:0.2", 8) != first
    assert lost(STREAM, "loss=0.2,burst-loss=0.01:0.2", 7) > first


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    text = "rate=5mbit,loss=0.1,burst-loss=0.02:0.3,delay=1ms,jitter=2ms,reorder=0.1,duplicate=0.1,corrupt=0.1"
    first, second, other = (replay(tmp_path / str(n), STREAM, text, seed=seed) for n, seed in enumerate((3, 3, 4)))
    assert first == second or first.out == second.out
    assert (tmp_path / "0" / "2.pcap").read_bytes() == (tmp_path / "1" / "2.pcap").read_bytes()
    assert first.out != other.out


def test_losses_come_in_bursts_as_long_as_the_model_has_them(tmp_path: Path) -> None:
    enter, leave = 0.02, 0.25
    result = replay(tmp_path, [(n, frame(2, 0, 60, n)) for n in range(20_000)], f"burst-loss={enter}:{leave}")
    kept = numbers(result.out[2])
    bursts = [later - earlier - 1 for earlier, later in pairwise(kept) if later > earlier + 1]
    assert sum(bursts) / len(bursts) == pytest.approx(1 / leave, rel=0.15)
    assert 1 - len(kept) / 20_000 == pytest.approx(enter / (enter + leave), rel=0.15)
    assert result.ports[2]["tx_link"]["lost"]["packets"] == 20_000 - len(kept)


def test_duplicates_and_corrupt_packets_are_counted_and_nothing_else_changes(tmp_path: Path) -> None:
    result = replay(tmp_path, STREAM, "duplicate=0.1,corrupt=0.1")
    link = result.ports[2]["tx_link"]
    sent = dict(enumerate(data for _, data in STREAM))
    wrong = 0
    for time, data in result.out[2]:
        original = sent[time // 100_000]
        difference = int.from_bytes(data, "big") ^ int.from_bytes(original, "big")
        assert difference.bit_count() <= 1
        wrong += difference != 0
    twins = len(result.out[2]) - 2000
    assert link["duplicated"] == {"packets": twins, "bytes": 100 * twins}
    assert 150 < twins < 250
    assert 150 < link["corrupted"] < 250
    assert wrong >= link["corrupted"]  # A corrupt packet may have been duplicated.
    assert balance(list(result.ports.values())) == 0


def test_delay_and_jitter_keep_to_their_range_and_reordering_is_counted(tmp_path: Path) -> None:
    result = replay(tmp_path, STREAM, "delay=5ms,jitter=1ms")
    delays = sorted(time - 100_000 * number(data) for time, data in result.out[2])
    assert 5_000_000 <= delays[0] < 5_050_000
    assert 5_950_000 < delays[-1] < 6_000_000
    late, expected = 0, 0
    for n in numbers(result.out[2]):
        late += n < expected
        expected = max(expected, n + 1)
    assert late > 100
    assert result.ports[2]["tx_link"]["reordered"] == late
    times = [time for time, _ in result.out[2]]
    assert times == sorted(times)


@settings(max_examples=tries(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32 - 1),
    rate=st.sampled_from(["1mbit", "37mbit", "unlimited"]),
    weights=st.sampled_from(["strict", "1:2:3:4:5:6:7:8"]),
    buffer=st.integers(2000, 40_000),
    loss=st.sampled_from([0, 0.1]),
    rest=st.sampled_from(["", "delay=1ms,jitter=5ms", "duplicate=0.3,corrupt=0.2", "burst-loss=0.1:0.3,reorder=0.2"]),
)
def test_every_packet_is_accounted_for(
    tmp_path: Path, seed: int, rate: str, weights: str, buffer: int, loss: float, rest: str
) -> None:
    draw = random.Random(seed)
    packets = [
        (
            n * draw.randrange(1, 3) * 20_000,
            frame(draw.choice((0, 2, 2, 2, 9)), draw.randrange(8), draw.randint(20, 1514), n),
        )
        for n in range(300)
    ]
    packets.sort(key=lambda item: item[0])
    text = f"rate={rate},weights={weights},buffer={buffer}B,loss={loss}" + (rest and f",{rest}")
    result = replay(tmp_path, [(0, packets[0][1]), *packets[1:]], text, seed=seed)
    one, two = result.ports[1], result.ports[2]
    assert balance([one, two]) == queue_balance(two) == 0
    assert one["rx"]["packets"] == 300
    assert two["tx"]["packets"] == len(result.out[2])
    assert two["tx"]["bytes"] == sum(len(data) for _, data in result.out[2])
    assert two["max_depth_bytes"] <= buffer
    assert one["drops"]["no_port"]["packets"] == sum(data[0] == 9 for _, data in packets)


# The command


@pytest.fixture
def program_files(tmp_path: Path) -> list[str]:
    document = steering()
    (tmp_path / "p.json").write_text(json.dumps(document))
    (tmp_path / "p.txtpb").write_text(text_format.MessageToString(p4info(document)))
    return ["--program", str(tmp_path / "p.json"), "--p4info", str(tmp_path / "p.txtpb")]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return zygote.run([*COMMAND, *arguments], 60)


def test_the_command_replays_a_file_and_ends(tmp_path: Path, program_files: list[str]) -> None:
    write_pcap(tmp_path / "in.pcap", STREAM)
    ports = ["-i", f"1@pcap:{tmp_path}/in.pcap", "-i", f"2@pcap:,{tmp_path}/out.pcap,loss=0.5"]
    done = run(*program_files, *ports, "--seed", "3", "--json")
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)["ports"][1]
    assert (
        two["tx"]["packets"]
        == len(list(pcap.frames(tmp_path / "out.pcap")))
        == 2000 - two["tx_link"]["lost"]["packets"]
    )
    done = run(*program_files, *ports)
    assert done.stdout.splitlines()[0].split()[:3] == ["port", "interface", "state"]


@pytest.mark.parametrize(
    ("ports", "message"),
    [
        (["1@pcap:/nosuch.pcap"], "/nosuch.pcap: no such file"),
        (["1@pcap:"], "write pcap:IN,OUT"),
        (["1@pcap:,/nosuch/out.pcap"], "/nosuch/out.pcap: No such file"),
        (["1@pcap:{0}/text", "2@udp:127.0.0.1:5001-127.0.0.1:5002"], "a clock of its own: beside other ports"),
        (["1@pcap:{0}/text"], "text: not a pcap file"),
        (["1@pcap:{0}/ng"], "a pcapng file: convert it"),
        (["1@pcap:{0}/cut"], "it ends within a packet"),
        (["1@pcap:{0}/snapped"], "only 60 bytes were captured of a packet of 100"),
        (["1@pcap:{0}/wlan"], "not Ethernet frames (link type 105)"),
        (["1@pcap:,{0}/o.pcap,mtu=9"], "'9' is not an MTU"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    tmp_path: Path, program_files: list[str], ports: list[str], message: str
) -> None:
    (tmp_path / "text").write_text("not a capture at all, but text that is long enough")
    (tmp_path / "ng").write_bytes(struct.pack("<I24x", 0x0A0D0D0A))
    (tmp_path / "cut").write_bytes(pcap.HEADER + struct.pack("=IIII", 0, 0, 60, 60) + bytes(59))
    (tmp_path / "snapped").write_bytes(pcap.HEADER + struct.pack("=IIII", 0, 0, 60, 100) + bytes(60))
    (tmp_path / "wlan").write_bytes(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 105))
    done = run(*program_files, *(word for port in ports for word in ("-i", port.format(tmp_path))))
    assert done.returncode == 2
    assert message in done.stderr.splitlines()[-1]


def test_old_and_foreign_files_are_read(tmp_path: Path) -> None:
    """Microseconds, the other byte order, and times that go back."""
    header = struct.pack(">IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = [struct.pack(">IIII", 5, micro, 3, 3) + b"abc" for micro in (7, 6, 9)]
    (tmp_path / "old.pcap").write_bytes(header + b"".join(records))
    assert list(pcap.frames(tmp_path / "old.pcap")) == [(5 * SECOND + micro * 1000, b"abc") for micro in (7, 7, 9)]
    with pytest.raises(PortError, match="No such file"):
        list(pcap.frames(tmp_path / "nosuch"))


@settings(max_examples=tries(300), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_bytes_are_frames_or_a_file_that_is_named(tmp_path: Path, data: st.DataObject) -> None:
    write_pcap(tmp_path / "whole.pcap", [(n * 1000, frame(2, 0, 60 + n, n)) for n in range(3)])
    content = bytearray((tmp_path / "whole.pcap").read_bytes())
    if data.draw(st.booleans()):
        content = bytearray(data.draw(st.binary(max_size=200)))
    for _ in range(data.draw(st.integers(0, 4))):
        if content:
            place = data.draw(st.integers(0, len(content) - 1))
            content[place] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, content[place] ^ 1]))
    path = tmp_path / "mutated.pcap"
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    found: list[tuple[int, bytes]] = []
    refusal = ""
    try:
        found.extend(pcap.frames(path))
    except PortError as error:
        refusal = str(error)
    assert refusal == "" or refusal.startswith(f"{path}: ")
    assert [time for time, _ in found] == sorted(time for time, _ in found)
    assert sum(len(data) for _, data in found) <= len(content)
