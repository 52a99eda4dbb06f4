# SPDX-License-Identifier: Apache-2.0
"""The fabric file: what a good one means, and that every mistake is named with its key and its remedy."""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from pathlib import Path

import pytest

from gradlane_controller.network import fabric, fabric_file
from gradlane_controller.network.fabric_file import FabricError
from tests.gradlane_controller.texts import fabric_text, leafspine_text


def test_every_field_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    path.write_text(fabric_text(target="bmv2"))
    it = fabric_file.load(path)
    (switch,) = it.switches
    assert (switch.name, switch.device_id, switch.address, switch.index) == ("s1", 1, "127.0.0.1:9559", 1)
    assert switch.target == "bmv2"
    assert it.thresholds == fabric.Thresholds(0.25, 0.5)
    port = it.ports[1]
    assert (port.number, port.host, port.mac, port.host_mac) == (2, "h2", "02:00:00:00:02:01", "02:00:00:00:02:02")
    assert (port.address, port.prefix) == (IPv4Address("10.0.2.2"), IPv4Network("10.0.2.0/24"))
    assert (port.rate, port.buffer) == (100_000_000, 64_000)
    assert port.switch == "s1"
    assert (port.gateway, port.address6, port.prefix6, port.gateway6) == (None, None, None, None)
    assert it.port_of("h2") is port
    assert it.port_of("h9") is None


def test_control_connections_always_have_the_top_class() -> None:
    assert fabric_file.parse(fabric_text(), "f.toml").dscp_classes == ((46, 5), (56, 7))


def test_a_port_without_prefix_routes_its_host_only() -> None:
    it = fabric_file.parse(fabric_text().replace('prefix = "10.0.1.0/24"\n', ""), "f.toml")
    assert it.ports[0].prefix == IPv4Network("10.0.1.2/32")


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('address = "127.0.0.1:9559"', 'address = "127.0.0.1"', "switch[0].address", "must be host:port"),
        ('address = "127.0.0.1:9559"', 'address = "127.0.0.1:70000"', "switch[0].address", "must be host:port"),
        ("device_id = 1", "device_id = 0", "switch[0].device_id", "from 1 to"),
        ('"gradlane-switch"', '"tofino"', "switch[0].target", "'gradlane-switch', 'bmv2'"),
        ("yellow = 0.25", "yellow = 0.75", "thresholds.yellow", "0 < yellow <= red < 1"),
        ("yellow = 0.25", "yellow = 0.0", "thresholds.yellow", "0 < yellow <= red < 1"),
        ("red = 0.5", "red = 1", "thresholds.red", "below 1"),
        ("red = 0.5", "red = 0.5\n[adaptive]", "adaptive", "names nothing to tune; add least_threshold and"),
        ("red = 0.5", "red = 0.5\n[adaptive]\ntolerance = 0", "adaptive.tolerance", "must be above 0"),
        ("red = 0.5", "red = 0.5\n[adaptive]\ndroppable = 1", "adaptive.droppable", "below 1"),
        ("red = 0.5", "red = 0.5\n[adaptive]\nthreshold = 1", "adaptive.threshold", "did you mean 'most_threshold'"),
        ("red = 0.5", "red = 0.5\n[adaptive]\nleast_threshold = 0.1", "adaptive.most_threshold", "is missing"),
        ("red = 0.5", "red = 0.5\n[adaptive]\ntolerance = 0.5\ninterval = 1", "adaptive.interval", "above 1"),
        (
            "red = 0.5",
            "red = 0.5\n[adaptive]\nleast_threshold = 0.5\nmost_threshold = 0.5",
            "adaptive.least_threshold",
            "is 0.5 and most_threshold is 0.5; it must hold that 0 < least_threshold < most_threshold < 1",
        ),
        ("number = 2", "number = 512", "port[1].number", "from 1 to 511"),
        ("number = 2", "number = 511", "port[1].number", "511, by which v1model drops what it sends there"),
        ("number = 2", "number = 255", "port[1].number", "port to the controller"),
        ("number = 2", "number = 1", "port[1].number", "like that of host 'h1' at 's1'"),
        ("number = 2", 'number = 2\nswitch = "s9"', "port[1].switch", "is 's9', which is no [[switch]]; there are s1"),
        ('host = "h2"', 'host = "h1"', "port[1].host", "like that of port 1 of 's1'"),
        ('"02:00:00:00:02:02"', '"02:00:00:00:01:02"', "port[1].host_mac", "like that of port 1"),
        ('"02:00:00:00:02:02"', '"02:00:00:00:01:01"', "port[0].mac", "which host 'h2' has"),
        ('"02:00:00:00:02:02"', '"03:00:00:00:01:02"', "port[1].host_mac", "unicast MAC"),
        ('"02:00:00:00:02:01"', '"0200.0000.0201"', "port[1].mac", "unicast MAC"),
        ('"10.0.2.2"', '"10.0.9.2"', "port[1].prefix", "must contain the host's address 10.0.9.2"),
        ('"10.0.2.0/24"', '"10.0.2.1/24"', "port[1].prefix", "must be a prefix such as '10.0.1.0/24'"),
        ('"10.0.2.0/24"', '"10.0.0.0/16"', "port[1].prefix", "overlaps 10.0.1.0/24 of port 1"),
        ("number = 1", 'number = 1\ngateway = "10.0.2.2"', "port[0].gateway", "which host 'h2' has"),
        ("number = 1", 'number = 1\naddress6 = "fe80::1"', "port[0].address6", "must be an IPv6 unicast address"),
        ("number = 1", 'number = 1\naddress6 = "10.0.0.1"', "port[0].address6", "must be an IPv6 unicast address"),
        ("number = 1", 'number = 1\ngateway6 = "fd00::1"', "port[0].gateway6", "is not known here"),
        ('rate = "100mbit"', 'rate = "100"', "port[0].rate", "'100'"),
        ('buffer = "64kB"', 'buffer = "4kB"', "port[0].buffer", "at least 6056 bytes"),
        ("dscp = 46", "dscp = 64", "dscp[0].dscp", "from 0 to 63"),
        ("dscp = 46", "dscp = 56", "dscp[0].dscp", "leave it out"),
        ("queue_class = 5", "queue_class = 7", "dscp[0].queue_class", "from 0 to 6"),
        ("queue_class = 5", "queue = 5", "dscp[0].queue_class", "is missing"),
        ('prefix = "10.0.1.0/24"', 'also = ["10.0.1.3", "x"]', "port[0].also.1", "must be an IPv4"),
        ('prefix = "10.0.1.0/24"', 'also = "239.0.0.1"', "port[0].also.0", "must be an IPv4 unicast address"),
        ('prefix = "10.0.1.0/24"', 'also = ["10.0.1.3", "10.0.1.2"]', "port[0].also", "has already"),
        ('prefix = "10.0.2.0/24"', 'also = ["10.0.1.2"]', "port[1].also", "is '10.0.1.2', like that of port 1"),
        ("[[dscp]]", "[[dscps]]", "dscps", "is not known here"),
        ("[[dscp]]", "[[rewrite]]\nport = 511\ndscp = 1\nto = 2\n[[dscp]]", "rewrite[0].port", "by which v1model"),
        ("[[dscp]]", "[[rewrite]]\nport = 9\ndscp = 1\nto = 2\n[[dscp]]", "rewrite[0].port", "has no [[port]] or"),
        (
            "[[switch]]",
            '[[switch]]\nname = "s0"\naddress = "127.0.0.1:1"\n[[switch]]',
            "switch[1].device_id",
            "like that",
        ),
    ],
)
def test_mistakes_are_named(old: str, new: str, key: str, reason: str) -> None:
    assert old in fabric_text()
    with pytest.raises(FabricError) as caught:
        fabric_file.parse(fabric_text().replace(old, new, 1), "f.toml")
    assert (caught.value.file, caught.value.key) == ("f.toml", key)
    assert reason in caught.value.reason


LINK = '[[link]]\nends = ["leaf1:9", "spine1:9"]\nrate = "100mbit"\nbuffer = "64kB"\n'


def test_links_are_their_two_ends() -> None:
    it = fabric_file.parse(leafspine_text(), "f.toml")
    assert [(switch.name, switch.device_id, switch.index) for switch in it.switches] == [
        ("leaf1", 1, 1), ("leaf2", 2, 2), ("spine1", 3, 3), ("spine2", 4, 4),
    ]  # fmt: skip
    assert [(port.host, port.number) for port in it.ports_at("leaf2")] == [("h3", 1), ("h4", 2)]
    up, down = it.link_ports[:2]
    assert (up.switch, up.number, up.mac) == ("leaf1", 5, "02:01:00:01:00:05")
    assert (up.peer, up.peer_number, up.peer_mac) == ("spine1", 1, "02:01:00:03:00:01")
    assert (down.switch, down.number, down.mac, down.peer_mac) == ("spine1", 1, up.peer_mac, up.mac)
    assert {port.rate for port in it.link_ports} == {100_000_000}
    port = it.ports[0]
    assert (port.gateway, port.gateway6) == (IPv4Address("10.0.1.1"), IPv6Address("fd00:1::1"))
    assert (port.address6, port.prefix6) == (IPv6Address("fd00:1::2"), IPv6Network("fd00:1::/64"))


@pytest.mark.parametrize(
    ("more", "key", "reason"),
    [
        (LINK.replace("leaf1:9", "leaf1:1"), "link[4].ends", "port 1 of 'leaf1', which host 'h1' has"),
        (LINK.replace("leaf1:9", "leaf1:5"), "link[4].ends", "port 5 of 'leaf1', which another link has"),
        (LINK.replace("leaf1:9", "leaf3:1"), "link[4].ends", "the switches are leaf1, leaf2, spine1, spine2"),
        (LINK.replace("leaf1:9", "leaf1:255"), "link[4].ends", "port to the controller"),
        (LINK.replace("leaf1:9", "leaf1:511"), "link[4].ends", "by which v1model drops what it sends there"),
        (LINK.replace("leaf1:9", "leaf1:512"), "link[4].ends", "a port from 1 to 510 other than 255"),
        (LINK.replace("leaf1:9", "spine1:8"), "link[4].ends", "are both at switch 'spine1'"),
        (LINK.replace('"leaf1:9", ', ""), "link[4].ends", "a list of 2 strings"),
        (LINK.replace("64kB", "1kB"), "link[4].buffer", "below a full frame"),
        ('[[switch]]\nname = "s9"\naddress = "a:1"\n', "switch[4]", "'s9' has no path to 'leaf1'"),
        ('[[port]]\nnumber = 3\nhost = "h9"\naddress = "10.0.9.2"\n', "port[4].switch", "is missing"),
    ],
)
def test_mistakes_about_switches_and_links_are_named(more: str, key: str, reason: str) -> None:
    with pytest.raises(FabricError) as caught:
        fabric_file.parse(leafspine_text() + more, "f.toml")
    assert caught.value.key == key
    assert reason in caught.value.reason


def test_a_class_is_listed_once_and_there_are_switches_and_ports() -> None:
    with pytest.raises(FabricError, match="46 is listed twice"):
        fabric_file.parse(fabric_text() + "[[dscp]]\ndscp = 46\nqueue_class = 4\n", "f.toml")
    rewrite = "[[rewrite]]\nport = 1\ndscp = 51\nto = 10\n"
    assert fabric_file.parse(fabric_text() + rewrite, "f.toml").rewrites == (fabric.Rewrite("s1", 1, 51, 10),)
    with pytest.raises(FabricError, match="51 is rewritten twice at port 1 of 's1'"):
        fabric_file.parse(fabric_text() + 2 * rewrite, "f.toml")
    with pytest.raises(FabricError, match=r"at least one \[\[port\]\]"):
        fabric_file.parse('[[switch]]\nname = "s1"\naddress = "a:1"\n', "f.toml")
    with pytest.raises(FabricError, match=r"at least one \[\[switch\]\]"):
        fabric_file.parse("", "f.toml")
    with pytest.raises(FabricError, match=r"array of tables, e.g. \[\[switch\]\]"):
        fabric_file.parse('[switch]\nname = "s1"\n', "f.toml")
