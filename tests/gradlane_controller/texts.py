# SPDX-License-Identifier: Apache-2.0
"""Fabric and job files for the controller, as texts."""

from collections.abc import Sequence


def fabric_text(address: str = "127.0.0.1:9559", target: str = "gradlane-switch", aggregation: bool = False) -> str:
    """The text of a fabric file with four hosts, h1 to h4."""
    ports = "".join(
        f"""
[[port]]
number = {n}
host = "h{n}"
mac = "02:00:00:00:0{n}:01"
host_mac = "02:00:00:00:0{n}:02"
address = "10.0.{n}.2"
prefix = "10.0.{n}.0/24"
{f'gateway = "10.0.{n}.1"' if aggregation else ""}
rate = "100mbit"
buffer = "64kB"
"""
        for n in range(1, 5)
    )
    return f"""
[[switch]]
name = "s1"
device_id = 1
address = "{address}"
target = "{target}"
{"aggregation = true" if aggregation else ""}
[thresholds]
yellow = 0.25
red = 0.5
{ports}
[[dscp]]
dscp = 46
queue_class = 5
"""


def leafspine_text(spines: int = 2, addresses: Sequence[str] = (), rates: Sequence[str] = ()) -> str:
    """The text of a fabric file with h1 and h2 at leaf1, h3 and h4 at leaf2, and spines between the leaves."""
    names = ["leaf1", "leaf2", *(f"spine{n}" for n in range(1, spines + 1))]
    addresses = addresses or [f"127.0.0.1:{9559 + n}" for n in range(len(names))]
    switches = "".join(
        f'[[switch]]\nname = "{name}"\naddress = "{address}"\n' for name, address in zip(names, addresses, strict=True)
    )
    ports = "".join(
        f"""
[[port]]
switch = "leaf{1 + n // 2}"
number = {1 + n % 2}
host = "h{n + 1}"
mac = "02:00:00:00:0{n + 1}:01"
host_mac = "02:00:00:00:0{n + 1}:02"
address = "10.0.{n + 1}.2"
prefix = "10.0.{n + 1}.0/24"
gateway = "10.0.{n + 1}.1"
address6 = "fd00:{n + 1}::2"
prefix6 = "fd00:{n + 1}::/64"
gateway6 = "fd00:{n + 1}::1"
rate = "100mbit"
buffer = "64kB"
"""
        for n in range(4)
    )
    links = "".join(
        f'[[link]]\nends = ["leaf{leaf}:{4 + spine}", "spine{spine}:{leaf}"]\n'
        f'rate = "{rates[spine - 1] if rates else "100mbit"}"\nbuffer = "64kB"\n'
        for spine in range(1, spines + 1)
        for leaf in (1, 2)
    )
    return switches + ports + links


def job_text(
    name: str = "demo",
    number: int = 1,
    hosts: tuple[int, ...] = (1, 2),
    servers: tuple[int, ...] = (),
    base: int = 0,
    mask: int = 4095,
    transport: str = "",
    policy: str = "",
) -> str:
    """The text of a job file on some of the hosts h1 to h4."""
    members = "".join(
        f'[[{kind}]]\nrank = {rank}\nhost = "h{n}"\naddress = "10.0.{n}.2"\n'
        for rank, (kind, n) in enumerate([("worker", n) for n in hosts] + [("server", n) for n in servers])
    )
    return f"""
[job]
name = "{name}"
id = {number}
key = "00112233445566ff00112233445566ff"
{members}
[transport]
rate = "100mbit"
{transport}
[policy]
queue_classes = [ {{ layers = [0, 3], class = 6 }}, {{ layers = [4, 65535], class = 5 }} ]
drop_precedences = [
{{ magnitudes = [0, 63], drop_precedence = 3 }},
{{ magnitudes = [64, 127], drop_precedence = 2, layers = [0, 10] }},
]
{policy}
[slots]
base = {base}
mask = {mask}
"""


def summed_text(number: int, lines: str = "", hosts: tuple[int, ...] = (1, 2, 3)) -> str:
    """The text of a job file, job `jNUMBER`, that a switch sums; `lines`: more of [transport]."""
    transport = f'collective = "switch"\nwire = "int16"\nmulticast = "239.1.{number}.1"\n{lines}'
    return job_text(f"j{number}", number, hosts, base=64 * number, mask=63, transport=transport)
