# SPDX-License-Identifier: Apache-2.0
"""Captures, and what tshark with the dissector of Gradlane makes of them."""

import contextlib
import socket
import struct
import subprocess
import threading
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.datagrams_by_hand import Fields
from tests.support.namespaces import socket_in
from tests.support.paths import ROOT

FOLDER = ROOT / "deploy" / "wireshark"
_SO_RCVBUFFORCE = 33


@dataclass
class Seen:
    """What tshark says of a frame: the fields of each datagram in it, what is wrong with any, the info column."""

    datagrams: list[Fields] = field(default_factory=list)
    marks: set[str] = field(default_factory=set)
    info: str = ""


def framed(payload: bytes) -> bytes:
    """In UDP, IPv4 and Ethernet, from 10.0.0.1 to 10.0.0.2, without checksums."""
    udp = struct.pack(">HHHH", 47400, 47400, 8 + len(payload), 0) + payload
    ip = struct.pack(">BBHIBBH4s4s", 0x45, 0, 20 + len(udp), 0, 64, 17, 0, bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)))
    return bytes(12) + b"\x08\x00" + ip + udp


def capture(path: Path, frames: Sequence[tuple[bytes, int]]) -> Path:
    """A pcap file of frames, of which only so many bytes were captured."""
    with path.open("wb") as file:
        file.write(struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        for frame, kept in frames:
            file.write(struct.pack("=IIII", 0, 0, min(kept, len(frame)), len(frame)) + frame[:kept])
    return path


def tshark(path: Path, *arguments: str, script: bool = True) -> str:
    """What it prints of a capture. `script`: with the dissector of the repository, else with what is installed."""
    with_script = ["-X", f"lua_script:{FOLDER / 'gradlane.lua'}"] if script else []
    # Without a person's own configuration, and a copy of the dissector in it.
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(path.parent), "LC_ALL": "C.UTF-8"}
    command = ["tshark", "-n", *with_script, "-r", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if line and not line.startswith("Running as user")]
    assert not said
    assert "Lua Error" not in done.stdout
    return done.stdout


def dissected(path: Path, workers: int = 0) -> list[Seen]:
    """Each frame."""
    infos = tshark(path, "-T", "fields", "-e", "_ws.col.Info").splitlines()
    packets = ET.fromstring(tshark(path, "-T", "pdml", "-o", f"gradlane.workers:{workers}")).iter("packet")
    return [_seen(packet, info) for packet, info in zip(packets, infos, strict=True)]


def _seen(packet: ET.Element, info: str) -> Seen:
    seen = Seen(info=info)
    for proto in packet.iter("proto"):
        if proto.get("name") != "gradlane":
            continue
        found: Fields = {}
        for it in proto.iter("field"):
            name = it.get("name", "").removeprefix("gradlane.")
            if it.get("name") == f"gradlane.{name}" and name != "hop":
                if name.startswith("bad_") or name in ("trimmed", "partial"):
                    seen.marks.add(name.removeprefix("bad_"))
                else:
                    found.setdefault(name, []).append(_value(name, it))
        seen.datagrams.append(found)
    return seen


def _value(name: str, it: ET.Element) -> int | float | str:
    if name in ("elements", "bitmap"):
        return it.get("value", "")
    show = it.get("show", "")
    if name in ("path", "bitmap.missing_slices"):
        return show
    return float(show) if name == "sum.number" else {"True": 1, "False": 0}.get(show) or int(show, 0)


@contextlib.contextmanager
def captured(namespace: str, interface: str, frames: list[bytes]) -> Iterator[None]:
    """Adds to `frames` what goes through an interface during the block."""
    over = threading.Event()
    with socket_in(namespace, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as raw:
        raw.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 32 << 20)
        raw.bind((interface, 3))
        raw.settimeout(0.2)

        def read() -> None:
            while True:
                try:
                    frames.append(raw.recv(1 << 17))
                except TimeoutError:
                    if over.is_set():
                        return

        reader = threading.Thread(target=read)
        reader.start()
        try:
            yield
        finally:
            over.set()
            reader.join()
