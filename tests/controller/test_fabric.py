# SPDX-License-Identifier: Apache-2.0
"""The fabric file: what a good one means, and that every mistake is named with its key and its remedy."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

import pytest

from gradlane_controller import fabric
from gradlane_controller.fabric import FabricError


def test_every_field_is_read(fabric_text: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(fabric_text(target="bmv2"))
    it = fabric.load(path)
    assert (it.switch.name, it.switch.device_id, it.switch.address) == ("s1", 1, "127.0.0.1:9559")
    assert it.switch.target == "bmv2"
    assert (it.thresholds.yellow, it.thresholds.red) == (0.25, 0.5)
    port = it.ports[1]
    assert (port.number, port.host, port.mac, port.host_mac) == (2, "h2", "02:00:00:00:02:01", "02:00:00:00:02:02")
    assert (port.address, port.prefix) == (IPv4Address("10.0.2.2"), IPv4Network("10.0.2.0/24"))
    assert (port.rate, port.buffer) == (100_000_000, 64_000)
    assert it.port_of("h2") is port
    assert it.port_of("h9") is None


def test_control_connections_always_have_the_top_class(fabric_text: Callable[..., str]) -> None:
    assert fabric.parse(fabric_text(), "f.toml").dscp_classes == ((46, 5), (56, 7))


def test_a_port_without_prefix_routes_its_host_only(fabric_text: Callable[..., str]) -> None:
    it = fabric.parse(fabric_text().replace('prefix = "10.0.1.0/24"\n', ""), "f.toml")
    assert it.ports[0].prefix == IPv4Network("10.0.1.2/32")


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('address = "127.0.0.1:9559"', 'address = "127.0.0.1"', "switch.address", "must be host:port"),
        ('address = "127.0.0.1:9559"', 'address = "127.0.0.1:70000"', "switch.address", "must be host:port"),
        ("device_id = 1", "device_id = 0", "switch.device_id", "from 1 to"),
        ('"gradlane-switch"', '"tofino"', "switch.target", "'gradlane-switch', 'bmv2'"),
        ("yellow = 0.25", "yellow = 0.75", "thresholds.yellow", "0 < yellow <= red < 1"),
        ("yellow = 0.25", "yellow = 0.0", "thresholds.yellow", "0 < yellow <= red < 1"),
        ("red = 0.5", "red = 1", "thresholds.red", "below 1"),
        ("number = 2", "number = 64", "port[1].number", "from 1 to 63"),
        ("number = 2", "number = 1", "port[1].number", "like that of port 1"),
        ('host = "h2"', 'host = "h1"', "port[1].host", "like that of port 1"),
        ('"02:00:00:00:02:02"', '"02:00:00:00:01:02"', "port[1].host_mac", "like that of port 1"),
        ('"02:00:00:00:02:02"', '"03:00:00:00:01:02"', "port[1].host_mac", "unicast MAC"),
        ('"02:00:00:00:02:01"', '"0200.0000.0201"', "port[1].mac", "unicast MAC"),
        ('"10.0.2.2"', '"10.0.9.2"', "port[1].prefix", "must contain the host's address 10.0.9.2"),
        ('"10.0.2.0/24"', '"10.0.2.1/24"', "port[1].prefix", "must be an IPv4 prefix"),
        ('"10.0.2.0/24"', '"10.0.0.0/16"', "port[1].prefix", "overlaps 10.0.1.0/24 of port 1"),
        ('rate = "100mbit"', 'rate = "100"', "port[0].rate", "'100'"),
        ('buffer = "64kB"', 'buffer = "4kB"', "port[0].buffer", "at least 6056 bytes"),
        ("dscp = 46", "dscp = 64", "dscp[0].dscp", "from 0 to 63"),
        ("dscp = 46", "dscp = 56", "dscp[0].dscp", "leave it out"),
        ("queue_class = 5", "queue_class = 8", "dscp[0].queue_class", "from 0 to 7"),
        ("queue_class = 5", "queue = 5", "dscp[0].queue_class", "is missing"),
        ("[[dscp]]", "[[dscps]]", "dscps", "is not known here"),
    ],
)
def test_mistakes_are_named(fabric_text: Callable[..., str], old: str, new: str, key: str, reason: str) -> None:
    assert old in fabric_text()
    with pytest.raises(FabricError) as caught:
        fabric.parse(fabric_text().replace(old, new, 1), "f.toml")
    assert (caught.value.file, caught.value.key) == ("f.toml", key)
    assert reason in caught.value.reason


def test_a_class_is_listed_once_and_there_are_ports(fabric_text: Callable[..., str]) -> None:
    with pytest.raises(FabricError, match="46 is listed twice"):
        fabric.parse(fabric_text() + "[[dscp]]\ndscp = 46\nqueue_class = 4\n", "f.toml")
    with pytest.raises(FabricError, match=r"at least one \[\[port\]\]"):
        fabric.parse('[switch]\nname = "s1"\naddress = "a:1"\n', "f.toml")
