# SPDX-License-Identifier: Apache-2.0
"""What ethtool(8) shows of an interface, asked of the kernel: offloads, queues, rings."""

import array
import fcntl
import socket
import struct
from dataclasses import dataclass

_SIOCETHTOOL = 0x8946
_GRINGPARAM, _GSTRINGS, _GSSET_INFO, _GFEATURES, _GCHANNELS = 0x10, 0x1B, 0x37, 0x3A, 0x3C
_ETH_SS_FEATURES = 4
_NAME_BYTES = 32


@dataclass(frozen=True)
class Amount:
    """What an interface has of something, and the most it can have. `kind`: how `ethtool -L` or `-G` calls it."""

    kind: str
    now: int
    most: int


def ask(name: str, data: bytes) -> bytes:
    """The kernel's answer to this struct of linux/ethtool.h, of the same length. Raises OSError."""
    buffer = array.array("B", data)
    pointer, _ = buffer.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, struct.pack("16sP", name.encode(), pointer).ljust(40, b"\0"))
    return buffer.tobytes()


def features(name: str) -> dict[str, bool]:
    """The offloads of an interface, by the kernel's names, and whether they are on. Raises OSError."""
    (number,) = struct.unpack_from("=I", ask(name, struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _ETH_SS_FEATURES, 0)), 16)
    strings = ask(name, struct.pack("=III", _GSTRINGS, _ETH_SS_FEATURES, number) + bytes(number * _NAME_BYTES))
    blocks = (number + 31) // 32
    # Of each block of 32: available, requested, active, never changed.
    states = ask(name, struct.pack("=II", _GFEATURES, blocks) + bytes(16 * blocks))
    found: dict[str, bool] = {}
    for index in range(number):
        text = strings[12 + index * _NAME_BYTES : 12 + (index + 1) * _NAME_BYTES].split(b"\0", 1)[0].decode()
        (active,) = struct.unpack_from("=I", states, 8 + 16 * (index // 32) + 8)
        found[text] = bool(active >> (index % 32) & 1)
    return found


def queues(name: str) -> Amount:
    """The queues that it receives by. Raises OSError, as where it has just one and can't tell."""
    (_, rx_most, _, _, both_most, rx, _, _, both) = struct.unpack(
        "=9I", ask(name, struct.pack("=9I", _GCHANNELS, *[0] * 8))
    )
    return Amount("combined", rx + both, both_most) if both_most else Amount("rx", rx, rx_most)


def ring(name: str) -> Amount:
    """The packets that a queue has room for until the kernel takes them. Raises OSError."""
    answer = struct.unpack("=9I", ask(name, struct.pack("=9I", _GRINGPARAM, *[0] * 8)))
    return Amount("rx", answer[5], answer[1])
