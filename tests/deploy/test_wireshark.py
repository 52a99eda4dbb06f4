# SPDX-License-Identifier: Apache-2.0
"""Wireshark's dissector belongs to gradlane.wire, and Debian's tshark makes of every datagram what the page of the wire
format says, also of those that agents and a switch really send."""

import os
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from gradlane._core import lib
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.deploy.datagrams_by_hand import (
    BITMAP,
    CRITICAL,
    DATA,
    END,
    MULTICAST,
    PROBE,
    PULL,
    REPAIR,
    REPORT,
    RETURNED,
    STOP,
    SUM,
    TRACE,
    TRIMMED,
    Fields,
    fields,
    header,
    refused,
    split,
)  # fmt: skip
from tests.deploy.tshark import FOLDER, capture, captured, dissected, framed, tshark
from tests.gradlane.sums.test_summed_jobs import SUMS, TRANSPORT, Steps
from tests.support import members
from tests.support.communicators import each, joined
from tests.support.effort import tries
from tests.support.lan import Lan
from tests.support.needs import needs, needs_root
from tests.support.paths import DOCS, ROOT
from tests.support.scripts import load_script
from tests.support.sum_relay import SumLan

HOSTS = 3
needs_tshark = needs("tshark")


build = load_script(FOLDER / "build.py")


def test_what_is_committed_was_made_from_these_sources() -> None:
    assert build.OUTPUT.read_text() == build.dissector(), "sources changed: run `make wireshark`, commit both"


def test_its_own_tables_are_those_of_the_core_and_of_the_page() -> None:
    numbers = [lib.GL_MEAN_OF_ARRIVED, lib.GL_MEAN, lib.GL_SUM, lib.GL_MIN, lib.GL_MAX, lib.GL_PRODUCT]
    assert numbers == list(range(1, len(build.REDUCTIONS)))
    assert lib.GL_FIRST_GROUP == build.FIRST_GROUP
    page = re.findall(
        r"^\|[^|]*\|[^|]*\| \| (\d) \| ([^:|]+)[^|]* \|", (DOCS / "wire-format.md").read_text(), re.MULTILINE
    )
    assert [(int(number), text.strip()) for number, text in page] == list(enumerate(build.REDUCTIONS))


def gradient_payloads(frames: list[bytes]) -> list[bytes]:
    """Of the frames that are UDP over IPv4 to port 47400."""
    return [f[42 : 14 + int.from_bytes(f[16:18], "big")] for f in frames if is_gradient(f)]


def is_gradient(frame: bytes) -> bool:
    return frame[12:15] == b"\x08\x00\x45" and frame[23] == 17 and frame[36:38] == struct.pack(">H", 47400)


def compare(folder: Path, frames: list[bytes], workers: int = 0) -> list[Fields]:
    """Each frame of a capture as tshark reads it and as the document says. Returns the datagrams."""
    kept = [frame for frame in frames if is_gradient(frame)]
    seen = dissected(capture(folder / "real.pcap", [(frame, len(frame)) for frame in kept]), workers)
    assert len(seen) == len(kept)
    found: list[Fields] = []
    for payload, it in zip(gradient_payloads(kept), seen, strict=True):
        assert it.datagrams == [fields(datagram, workers) for datagram in split(payload)], payload[:100].hex()
        assert it.marks <= {"trimmed"}
        found += it.datagrams
    return found


@needs_root
@needs_tshark
def test_what_agents_send_over_a_link_that_loses(tmp_path: Path) -> None:
    frames: list[bytes] = []
    with Lan(2) as lan:
        for port in ("p0", "p1"):
            # A third of the rate that the job file promises, and a buffer of a few slices.
            queue = ("tbf", "rate", "330mbit", "burst", "16kb", "limit", "24kb")
            lan.run(lan.bridge, "tc", "qdisc", "add", "dev", port, "root", *queue)
        lines = "trace_every = 1\n[loss]\npush = 0.05\n"
        file = members.job_file(tmp_path, lan.addresses, lines=lines)
        with (
            captured(lan.space(0), "eth0", frames),
            lan.agents(tmp_path) as agents,
            joined(agents, file, 2) as ranks,
        ):
            for _ in range(4):
                each(
                    ranks, lambda c: c.all_reduce(np.ones(100_000, np.float32), name="w", layers=[(0, 0), (40_000, 1)])
                )
    found = compare(tmp_path, frames)
    assert {DATA, REPAIR, BITMAP, STOP, REPORT, TRACE} <= {it["kind"][0] for it in found}
    assert {it["source"][0] for it in found} == {0, 1}
    assert any(len(split(payload)) > 1 for payload in gradient_payloads(frames)), "no send of several datagrams"


@needs_root
@needs_tshark
@needs("ethtool")
def test_what_workers_and_a_switch_that_sums_send(tmp_path: Path) -> None:
    frames: list[bytes] = []
    with SumLan(HOSTS) as lan:
        file = members.job_file(tmp_path, lan.addresses, lines=TRANSPORT)
        with (
            lan.agents(tmp_path) as agents,
            lan.switch(SUMS),
            captured(lan.space(0), "eth0", frames),
            joined(agents, file, HOSTS) as ranks,
        ):
            steps = Steps(ranks)
            for _ in range(3):
                steps.step()
    found = compare(tmp_path, frames, HOSTS)
    sums = [it for it in found if it["flags.sum"] == [1]]
    assert {it["flags.pull"][0] for it in sums} == {0, 1}, "contributions and results"
    results = [it for it in sums if it["flags.pull"] == [1]]
    # What each of Steps' contributions is a multiple of: the numbers are those that were summed.
    assert all(float(number) * 256 % 1 == 0 for it in results for number in it["sum.number"])
    assert any(it["sum.number"][0] for it in results)


# Each kind, by the document.

HOPS = [(7, 3, 5, 0x61, 80, 7, 99), (300, 1, 2, 0x23, 0, 9, 1 << 31)]
LANES = bytes(range(256)) * 5 + bytes(range(128))
EXAMPLES = {
    "data": header(DATA, way=16, flags=END | CRITICAL, length=40) + bytes(range(40)),
    "nobody contributed": header(DATA, flags=PULL | MULTICAST, element_type=0x28, magnitude=255),
    "repair": header(REPAIR, index=9, length=8, source=1023, layer=65535, tensor=0xF001, message=2**32 - 1) + bytes(8),
    "trimmed": header(TRIMMED, index=4, length=1432, way=5, job=65535),
    "probe": header(PROBE, flags=END, step=2**32 - 1),
    "bitmap": header(BITMAP, flags=END, length=2, budget=0) + b"\xf3\x01",
    "bitmap of many gaps": header(BITMAP, slices=700, length=88) + b"\x55" * 88,
    "stop": header(STOP, length=1024, slices=8192, budget=8000) + bytes(1000) + b"\xff" * 24,
    "complete": header(STOP, length=2) + b"\xff\x03",
    "report": header(REPORT, length=24) + bytes(range(100, 124)),
    "report of a repair": header(REPORT, length=24) + bytes(16) + b"\x80\x07" + b"\xe0\0\0\0\0\x0a",
    "trace": header(TRACE, way=2),
    "trace that goes back": header(TRACE, flags=RETURNED, length=32)
    + b"".join(struct.pack(">HHHBBII", *hop) for hop in HOPS),
    "contribution": header(DATA, flags=SUM, element_type=0x19, budget=0, length=140)
    + struct.pack(">IIHbB", 9, 0, 65, -20, 3) + LANES[:128],
    "closing contribution": header(REPAIR, flags=SUM, element_type=0x1A, budget=0, length=1420)
    + struct.pack(">IIHbB", 9, 6, 65, 3, 0) + LANES,
    "result": header(DATA, flags=SUM | PULL, element_type=0x3A, budget=0, length=268)
    + struct.pack(">IIHbB", 2**32 - 1, 1 << 31 | 5, 4095, -128, 255) + LANES[:256],
}  # fmt: skip


@needs_tshark
@pytest.mark.parametrize("workers", [0, 4])
def test_every_kind_is_read_as_the_document_says(tmp_path: Path, workers: int) -> None:
    frames = [framed(it) for it in EXAMPLES.values()]
    seen = dissected(capture(tmp_path / "kinds.pcap", [(it, len(it)) for it in frames]), workers)
    for (name, datagram), it in zip(EXAMPLES.items(), seen, strict=True):
        assert not refused(datagram), name
        assert it.datagrams == [fields(datagram, workers)], name
        assert it.marks == ({"trimmed"} if name == "trimmed" else set()), name


@needs_tshark
def test_the_info_column_says_what_one_looks_for(tmp_path: Path) -> None:
    frames = [framed(it) for it in (*EXAMPLES.values(), EXAMPLES["data"] * 3, b"\x10")]
    seen = dissected(capture(tmp_path / "kinds.pcap", [(it, len(it)) for it in frames]))
    infos = dict(zip([*EXAMPLES, "several", "short"], (it.info for it in seen), strict=True))
    head = "job 3, 2 -> 10.0.0.2, step 5, tensor 2.1, message 77"
    of_slice = f"{head}, slice 0 of 10, layer 4, magnitude 200"
    data = f"DATA push {of_slice}, budget 2, way 16 END CRITICAL"
    assert infos["data"] == data
    assert infos["several"] == f"{data}; and 2 more in one send"
    assert infos["bitmap"] == f"BITMAP push {head}, budget 0 END, 7 of 10 arrived, missing 2-3, 9"
    assert infos["complete"] == f"STOP push {head}, budget 2, 10 of 10 count"
    assert infos["trace that goes back"] == f"TRACE push {of_slice}, budget 2 RETURNED, path 300:1-2 7:3-5"
    assert infos["report of a repair"] == (
        f"REPORT push {of_slice}, budget 2, received 0, marked 7, share 0 kbit/s, room 0 bytes, clock 0 us, "
        "ways 1:2 2:1 16:7, of a REPAIR"
    )
    assert infos["contribution"] == (
        f"DATA contribution {of_slice}, budget 0, generation 9, members none, slot 65, exponent -20, epoch 3, "
        "64 lanes of 16 bits"
    )
    assert "DATA result" in infos["result"]
    assert "members 0+2+31" in infos["result"]
    assert "group operation 61441" in infos["repair"]
    assert infos["short"] == "short datagram: 1 bytes"


MISTAKES = {
    "header": [b"\x10" * 35, header(DATA, version=2), header(8), header(DATA, flags=64), header(DATA, flags=RETURNED),
               header(PROBE, flags=SUM, element_type=9), header(DATA, way=17), header(DATA, element_type=9),
               header(DATA, element_type=0), header(DATA, element_type=0x71)],
    "job": [header(DATA, job=0)],
    "range": [header(DATA, slices=8193), header(DATA, index=10)],
    "budget": [header(DATA, budget=11)],
    "length": [header(DATA, length=1), header(DATA) + b"\0", header(DATA) + header(DATA, job=4),
               header(DATA) + header(DATA, token=1), header(DATA) + header(DATA, version=2),
               header(TRIMMED, length=9) + bytes(9),
               header(PROBE, length=1) + b"\0", header(BITMAP, length=1) + b"\0", header(STOP, length=3) + bytes(3),
               header(REPORT, length=23) + bytes(23)],
    "trace": [header(TRACE, length=15) + bytes(15), header(TRACE, length=144) + bytes(144),
              header(TRACE, length=16) + bytes(6) + b"\x80" + bytes(9),
              header(TRACE, length=16) + bytes(6) + b"\x04" + bytes(9)],
    "sum": [header(DATA, flags=SUM, element_type=9, length=n) + bytes(n) for n in (0, 11, 12, 13, 139, 1548)],
}  # fmt: skip


@needs_tshark
def test_each_mistake_has_the_name_of_the_count_of_a_receiver_that_refuses_it(tmp_path: Path) -> None:
    mistakes = [(name, datagram) for name, several in MISTAKES.items() for datagram in several]
    frames = [framed(datagram) for _, datagram in mistakes]
    seen = dissected(capture(tmp_path / "mistakes.pcap", [(it, len(it)) for it in frames]))
    for (name, datagram), it in zip(mistakes, seen, strict=True):
        assert it.marks - {"trimmed"} == {name} == refused(datagram), datagram.hex()
        assert len(it.datagrams[0].get("hop.switch_id", [])) <= 8


@needs_tshark
def test_what_was_captured_in_part_is_read_as_far_as_it_goes_and_not_called_wrong(tmp_path: Path) -> None:
    whole = [framed(it) for it in EXAMPLES.values() if len(it) > 36]
    seen = dissected(capture(tmp_path / "headers.pcap", [(it, 42 + 36) for it in whole]))
    assert [it.marks for it in seen] == [{"partial"}] * len(whole)
    assert [it.datagrams[0]["message"] for it in seen] == [fields(it[42:])["message"] for it in whole]
    seen = dissected(capture(tmp_path / "parts.pcap", [(it, 42 + 35) for it in whole]))
    assert [it.marks for it in seen] == [{"partial"}] * len(whole)


# Any bytes.

any_header = st.builds(
    header,
    st.integers(0, 15),
    job=st.sampled_from([0, 1, 3]),
    way=st.integers(0, 20),
    flags=st.sampled_from([0, PULL, END, RETURNED, SUM, SUM | PULL, 64]),
    tensor=st.sampled_from([0, 33, 0xF000, 0xFFFF]),
    element_type=st.sampled_from([0x11, 0x28, 0x19, 0x1A, 0, 0x7F]),
    index=st.sampled_from([0, 1, 9, 8191, 65535]),
    slices=st.sampled_from([0, 1, 10, 64, 8192, 65535]),
    budget=st.sampled_from([0, 1, 20]),
    length=st.sampled_from([0, 1, 2, 8, 12, 16, 24, 32, 128, 140, 144, 1024, 65535]),
)
any_datagram = st.one_of(
    st.binary(max_size=100),
    st.builds(lambda head, rest: head + rest, any_header, st.binary(max_size=200)),
    any_header.map(lambda head: head + bytes(min(int.from_bytes(head[26:28], "big"), 9000))),
    st.builds(lambda head, cut: head[:cut], st.sampled_from(list(EXAMPLES.values())), st.integers(1, 1100)),
)


@needs_tshark
def test_no_bytes_break_it_and_what_a_receiver_refuses_is_marked(tmp_path: Path) -> None:
    made: list[tuple[bytes, int]] = []

    @settings(max_examples=tries(1500), database=None)
    @given(any_datagram.filter(bool), st.sampled_from([1 << 16] * 3 + [42, 43, 50, 77, 78, 79, 100]))
    def gather(datagram: bytes, kept: int) -> None:
        made.append((datagram, kept))

    gather()
    seen = dissected(capture(tmp_path / "any.pcap", [(framed(datagram), kept) for datagram, kept in made]), 4)
    whole = [(datagram, it) for (datagram, kept), it in zip(made, seen, strict=True) if kept >= 42 + len(datagram)]
    assert len(whole) > len(made) // 2
    for datagram, it in whole:
        assert it.marks - {"trimmed"} == refused(datagram), datagram.hex()


# What the page says.


PAGE = (DOCS / "wire-format.md").read_text().split("## In Wireshark")[1].split("\n## ")[0]
MORE = {
    "trimmed of job 3": header(TRIMMED, source=1, length=1432),
    "short": b"\x10",
    "of job 4": header(DATA, job=4, message=1),
}
FOUND = {
    "gradlane.job == 3 && gradlane.kind == 2": {"trimmed of job 3"},
    "gradlane.message == 77 && gradlane.source == 2": {*EXAMPLES} - {"repair"},
    "gradlane.kind == 4 && gradlane.bitmap.missing > gradlane.budget": {"bitmap", "bitmap of many gaps"},
    "gradlane.hop.wait > 1000000": {"trace that goes back"},
    "gradlane.sum.member == 2 && gradlane.flags.pull == 1": {"result"},
    "_ws.expert.severity == error": {"short"},
}


def test_the_page_has_these_filters() -> None:
    assert re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE) == list(FOUND)


@needs_tshark
@pytest.mark.parametrize("wanted", FOUND)
def test_the_filters_of_the_page_find_what_they_are_for(tmp_path: Path, wanted: str) -> None:
    examples = EXAMPLES | MORE
    path = capture(tmp_path / "kinds.pcap", [(framed(it), 1 << 16) for it in examples.values()])
    numbers = tshark(path, "-Y", wanted, "-T", "fields", "-e", "frame.number").split()
    assert {list(examples)[int(number) - 1] for number in numbers} == FOUND[wanted]


@needs_tshark
def test_installed_as_the_page_says_it_is_found(tmp_path: Path) -> None:
    path = capture(tmp_path / "kinds.pcap", [(framed(EXAMPLES["data"]), 1 << 16)])
    assert "Gradlane" not in tshark(path, script=False)
    (line,) = re.findall(r"^    (install .*)$", PAGE, re.MULTILINE)
    subprocess.run(line, shell=True, check=True, cwd=ROOT, env={**os.environ, "HOME": str(tmp_path)})
    assert "Gradlane" in tshark(path, script=False)


@needs_tshark
def test_lanes_are_found_by_a_filter_that_shows_none(tmp_path: Path) -> None:
    path = capture(tmp_path / "kinds.pcap", [(framed(it), 1 << 16) for it in EXAMPLES.values()])
    assert len(tshark(path, "-Y", "gradlane.sum.lane == 0x7c7d7e7f").splitlines()) == 2
