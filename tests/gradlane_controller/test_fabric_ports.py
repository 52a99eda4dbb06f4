# SPDX-License-Identifier: Apache-2.0
"""That no two hosts' ports of a fabric file have what each needs for itself; and in which time that is found."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.controller.large_fabric import LargeFabric
from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric_file import FabricError
from tests.support.effort import tries

_PREFIXES = st.tuples(st.integers(0, 15), st.integers(26, 32)).map(
    lambda it: IPv4Network((0x0A000000 | it[0], it[1]), strict=False)
)


def _text(prefixes: list[IPv4Network]) -> str:
    """A port for each, whose host has the first address of the prefix that is free."""
    given = {network: list(network.hosts()) for network in prefixes}
    ports: list[dict[str, Any]] = []
    for number, network in enumerate(prefixes, 1):
        ports.append(
            {
                "number": number,
                "host": f"h{number}",
                "mac": f"02:00:00:00:{number:02x}:01",
                "host_mac": f"02:00:00:00:{number:02x}:02",
                "address": str(given[network].pop(0)),
                "prefix": str(network),
                "rate": "100mbit",
                "buffer": "64kB",
            }
        )
    return tomli_w.dumps({"switch": [{"name": "s1", "device_id": 1, "address": "127.0.0.1:9559"}], "port": ports})


@settings(max_examples=tries(100), deadline=None)
@given(st.lists(_PREFIXES, min_size=2, max_size=8))
def test_prefixes_are_equal_or_disjoint(prefixes: list[IPv4Network]) -> None:
    prefixes = [it for n, it in enumerate(prefixes) if prefixes[:n].count(it) < len(list(it.hosts()))]
    wrong = any(one != other and one.overlaps(other) for one, other in combinations(prefixes, 2))
    refused = pytest.raises(FabricError, match=r"make them equal or disjoint|like that of port")
    with refused if wrong else nullcontext():
        fabric_file.parse(_text(prefixes), "f.toml")


@pytest.mark.parametrize("first", ["10.0.0.0/22", "10.0.1.4/30", "10.0.2.4/30"])
def test_each_prefix_that_overlaps_is_named_with_one_that_it_overlaps(first: str) -> None:
    others = [IPv4Network(text) for text in ("10.0.1.0/28", "10.0.2.0/28", "10.0.3.0/28")]
    with pytest.raises(FabricError) as caught:
        fabric_file.parse(_text([*others, IPv4Network(first)]), "f.toml")
    text = str(caught.value)
    (named,) = [it for it in others if f"{first} overlaps {it} of port" in text]
    assert named.overlaps(IPv4Network(first))
    assert "port[3].prefix" in text


def _calls(act: Callable[[], object]) -> int:
    """How many functions it calls, of Python and of C: a time that no other load changes."""
    count = 0

    def note(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        act()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("more", [LargeFabric(4, 2, 512), LargeFabric(32, 2, 64)])
def test_the_time_to_read_it_grows_as_the_file_does(more: LargeFabric) -> None:
    def read(fabric: LargeFabric) -> int:
        text = tomli_w.dumps(fabric.document([f"127.0.0.1:{9000 + n}" for n in range(len(fabric.switches))]))
        return round(1000 * _calls(lambda: fabric_file.parse(text, "f.toml")) / len(text))

    assert read(more) <= 1.1 * read(LargeFabric(4, 2, 64))
