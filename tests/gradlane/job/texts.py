# SPDX-License-Identifier: Apache-2.0
"""Job files of tests."""

MINIMAL = """
[job]
name = "small"
id = 7
key = "11111111111111111111111111111111"
[[worker]]
rank = 0
host = "a"
address = "10.0.1.2"
[transport]
rate = "1gbit"
"""


def ranks(count: int, transport: str = "") -> str:
    """A job of so many workers."""
    members = (f'[[worker]]\nrank = {k}\nhost = "h{k}"\naddress = "10.0.{k >> 8}.{k & 255}"\n' for k in range(count))
    return f'[job]\nname = "wide"\nid = 1\n[transport]\nrate = "1gbit"\n{transport}\n' + "".join(members)
