# SPDX-License-Identifier: Apache-2.0
"""Translated types: controllers see strings, or numbers of another width, where the program has its own."""

from random import Random
from typing import Any

import pytest
from finsy.proto import p4r, rpc_code

from gradlane_switch import EntityError, Switch
from gradlane_switch.p4info.translation import Names
from gradlane_switch.p4runtime import batch
from gradlane_switch.p4runtime.reconcile import reconcile
from tests.gradlane_switch.compiled_programs import delete, ids, load, modify

Match = dict[int, Any]


class Router:
    """programs/translated.p4, by names."""

    def __init__(self) -> None:
        self.switch: Switch = load("translated")
        self.ids = ids(self.switch)

    def entry(self, table: str, match: Match, action: str, *arguments: bytes, priority: int = 0) -> Any:
        message = p4r.TableEntry(table_id=self.ids[table], priority=priority)
        for number, value in match.items():
            field = message.match.add(field_id=number)
            if isinstance(value, bytes):
                field.exact.value = value
            else:
                field.MergeFrom(value)
        self._call(message.action.action, action, arguments)
        return p4r.Entity(table_entry=message)

    def member(self, number: int, action: str, *arguments: bytes) -> Any:
        message = p4r.ActionProfileMember(action_profile_id=self.ids["choices"], member_id=number)
        self._call(message.action, action, arguments)
        return p4r.Entity(action_profile_member=message)

    def _call(self, message: Any, action: str, arguments: tuple[bytes, ...]) -> None:
        message.action_id = self.ids[action]
        for number, value in enumerate(arguments, 1):
            message.params.add(param_id=number, value=value)

    def route(self, vrf: bytes, octet: int, next_hop: bytes) -> Any:
        prefix = p4r.FieldMatch(lpm=p4r.FieldMatch.LPM(value=bytes([octet, 0, 0, 0]), prefix_len=8))
        return self.entry("routes", {1: vrf, 2: prefix}, "set_next_hop", next_hop)

    def read(self, table: str = "") -> list[Any]:
        wanted = p4r.TableEntry(table_id=self.ids[table] if table else 0)
        return self.switch.read(p4r.Entity(table_entry=wanted))

    def out(self, octet: int, vrf: int = 0, port: int = 1) -> list[tuple[int, bytes]]:
        return self.switch.process(port, bytes([octet, 0, 0, 1, vrf, 0]))


@pytest.fixture
def router() -> Router:
    return Router()


def refused(write: Any, *arguments: Any) -> tuple[int, str]:
    with pytest.raises(EntityError) as caught:
        write(*arguments)
    return caught.value.code, str(caught.value)


# Strings


def test_packets_meet_entries_that_name_the_same_string(router: Router) -> None:
    written = [
        router.entry("classify", {1: b"\x01"}, "set_vrf", b"vrf-blue"),
        router.route(b"vrf-blue", 10, b"hop-a"),
        router.route(b"vrf-blue", 20, b"hop-b"),
        router.route(b"", 10, b"hop-b"),
        router.entry("next_hops", {1: b"hop-a"}, "send", b"7"),
        router.entry("next_hops", {1: b"hop-b"}, "send", b"510"),
    ]
    for entity in written:
        router.switch.insert(entity)
    assert [port for port, _ in router.out(10, vrf=1)] == [7]
    assert [port for port, _ in router.out(20, vrf=1)] == [510]
    # "" is the VRF 0, which packets of no other have: the program says so.
    assert [port for port, _ in router.out(10, vrf=2)] == [510]
    assert router.out(20, vrf=2) == []
    key = lambda entity: entity.SerializeToString(deterministic=True)  # noqa: E731
    assert sorted(router.read(), key=key) == sorted(written, key=key)
    assert router.switch.read(written[0]) == [written[0]]


def test_a_number_is_free_again_once_nothing_has_it(router: Router) -> None:
    """Next hops have 2 bits: 0 and 3 are never given to a string, so there are two."""
    router.switch.insert(router.route(b"", 1, b"hop-a"))
    router.switch.insert(router.route(b"", 2, b"hop-b"))
    code, text = refused(router.switch.insert, router.route(b"", 3, b"hop-c"))
    assert code == rpc_code.RESOURCE_EXHAUSTED
    assert "all numbers of type next_hop_id_t are in use" in text
    router.switch.insert(router.entry("next_hops", {1: b"hop-a"}, "NoAction"))
    delete(router.switch, router.route(b"", 1, b"hop-a"))
    assert refused(router.switch.insert, router.route(b"", 3, b"hop-c"))[0] == rpc_code.RESOURCE_EXHAUSTED
    delete(router.switch, router.entry("next_hops", {1: b"hop-a"}, "NoAction"))
    router.switch.insert(router.route(b"", 3, b"hop-c"))
    modify(router.switch, router.route(b"", 2, b"hop-c"))
    router.switch.insert(router.route(b"", 4, b"hop-d"))
    assert {entity.table_entry.action.action.params[0].value for entity in router.read("routes")} == {
        b"hop-c",
        b"hop-d",
    }


def test_members_action_sets_and_defaults_have_their_strings_too(router: Router) -> None:
    router.switch.insert(router.member(1, "set_next_hop", b"hop-a"))
    router.switch.insert(router.member(2, "set_next_hop", b"hop-b"))
    assert refused(router.switch.insert, router.route(b"", 1, b"hop-c"))[0] == rpc_code.RESOURCE_EXHAUSTED
    [first, _] = router.switch.read(p4r.Entity(action_profile_member=p4r.ActionProfileMember()))
    assert first == router.member(1, "set_next_hop", b"hop-a")
    modify(router.switch, router.member(2, "NoAction"))
    delete(router.switch, router.member(1, "NoAction"))
    one_shot = router.entry("spread", {1: b"vrf-x"}, "NoAction")
    one_shot.table_entry.action.ClearField("action")
    for name in (b"hop-c", b"hop-d"):
        added = one_shot.table_entry.action.action_profile_action_set.action_profile_actions.add(weight=1)
        added.action.action_id = router.ids["set_next_hop"]
        added.action.params.add(param_id=1, value=name)
    delete(router.switch, router.member(2, "NoAction"))
    router.switch.insert(one_shot)
    assert router.read("spread") == [one_shot]
    assert refused(router.switch.insert, router.route(b"", 1, b"hop-a"))[0] == rpc_code.RESOURCE_EXHAUSTED
    delete(router.switch, one_shot)
    default = router.entry("routes", {}, "set_next_hop", b"hop-e")
    default.table_entry.is_default_action = True
    modify(router.switch, default)
    router.switch.insert(router.route(b"", 1, b"hop-f"))
    assert refused(router.switch.insert, router.route(b"", 2, b"hop-g"))[0] == rpc_code.RESOURCE_EXHAUSTED


def test_what_is_refused_and_what_is_only_asked_for_leaves_no_strings(router: Router) -> None:
    for number in range(50):
        name = b"hop-%d" % number
        assert refused(delete, router.switch, router.entry("next_hops", {1: name}, "NoAction"))[0] == rpc_code.NOT_FOUND
        assert router.switch.read(router.entry("next_hops", {1: name}, "NoAction")) == []
        assert refused(router.switch.insert, router.entry("next_hops", {1: name}, "mark", b"\x01"))[0] > 0
    router.switch.insert(router.route(b"", 1, b"hop-a"))
    router.switch.insert(router.route(b"", 2, b"hop-b"))
    long = b"x" * 1025
    assert refused(router.switch.insert, router.route(long, 3, b"hop-a"))[0] == rpc_code.INVALID_ARGUMENT
    router.switch.insert(router.route(long[1:], 3, b"hop-a"))


def test_a_decimal_number_is_the_programs_own(router: Router) -> None:
    router.switch.insert(
        router.entry(
            "acl", {1: p4r.FieldMatch(optional=p4r.FieldMatch.Optional(value=b"5"))}, "mark", b"\x2a", priority=1
        )
    )
    router.switch.insert(router.entry("next_hops", {1: b"0"}, "send", b"3"))
    assert router.out(1, port=5) == [(3, bytes([1, 0, 0, 1, 0, 42]))]
    assert router.out(1, port=6) == [(3, bytes([1, 0, 0, 1, 0, 0]))]
    # Neither of these is a decimal number of 9 bits: they are names.
    for name in (b"07", b"512", b"Ethernet0", b"\xff\xfe"):
        modify(router.switch, router.entry("next_hops", {1: b"0"}, "send", name))
        [(port, _)] = router.out(1, port=6)
        assert 0 < port < 511
        assert port not in (3, 7)
        assert router.read("next_hops")[0].table_entry.action.action.params[0].value == name


def test_packets_of_the_controller_have_names(router: Router) -> None:
    """packet_in is 18 bits long, and the program does not have it: what is punted begins with it all the same."""
    router.switch.cpu_port = 510
    router.switch.insert(router.entry("next_hops", {1: b"0"}, "send", b"510"))
    header = (5 << 9 | 260) << 6
    frame = header.to_bytes(3, "big") + b"\0\0\0rest"
    assert router.switch.process(5, frame) == []
    [message] = router.switch.notifications()
    assert [(it.metadata_id, it.value) for it in message.packet.metadata] == [(1, b"5"), (2, b"260")]
    assert message.packet.payload == frame[3:]
    router.switch.insert(router.entry("next_hops", {1: b"1"}, "send", b"uplink"))
    [port] = {port for port in range(511) if router.switch.pipeline.schema.names and _named(router, port) == b"uplink"}

    def packet_out(name: bytes) -> Any:
        message = p4r.PacketOut(payload=b"\0\0\0\1\0\0")
        for number, value in ((1, name), (2, b"\x00")):
            message.metadata.add(metadata_id=number, value=value)
        return message

    assert router.switch.packet_out(packet_out(b"9")) == [(9, b"\0\0\0\1\0\0")]
    assert router.switch.packet_out(packet_out(b"uplink")) == [(port, b"\0\0\0\1\0\0")]
    code, text = refused(router.switch.packet_out, packet_out(b"downlink"))
    assert code == rpc_code.INVALID_ARGUMENT
    assert "there is nothing of the name b'downlink'" in text


def _named(router: Router, port: int) -> bytes:
    """What a controller sees of a port: a packet-in that comes from it."""
    router.switch.process(port, ((port << 9) << 6).to_bytes(3, "big") + b"\0\0\0")
    [message] = router.switch.notifications()
    return message.packet.metadata[0].value


def test_rolling_back_and_reconciling_keep_what_strings_mean(router: Router) -> None:
    for entity in (
        router.entry("classify", {1: b"\x01"}, "set_vrf", b"vrf-blue"),
        router.route(b"vrf-blue", 10, b"hop-a"),
        router.entry("next_hops", {1: b"hop-a"}, "send", b"7"),
    ):
        router.switch.insert(entity)
    before = router.read()
    changes = [
        (p4r.Update.DELETE, router.route(b"vrf-blue", 10, b"hop-a")),
        (p4r.Update.DELETE, router.entry("next_hops", {1: b"hop-a"}, "send", b"7")),
        (p4r.Update.INSERT, router.route(b"vrf-red", 10, b"hop-b")),
        (p4r.Update.DELETE, router.route(b"vrf-green", 10, b"hop-b")),
    ]
    updates = [p4r.Update(type=kind, entity=entity) for kind, entity in changes]
    batch.write(router.switch.pipeline, updates, p4r.WriteRequest.ROLLBACK_ON_ERROR)
    key = lambda entity: entity.SerializeToString(deterministic=True)  # noqa: E731
    assert sorted(router.read(), key=key) == sorted(before, key=key)
    after = Router()
    reconcile(router.switch.pipeline, after.switch.pipeline)
    assert sorted(after.read(), key=key) == sorted(before, key=key)
    for made in (router, after):
        assert [port for port, _ in made.out(10, vrf=1)] == [7]
        made.switch.insert(made.route(b"", 1, b"hop-z"))


def test_strings_and_numbers_are_one_to_one_and_bounded() -> None:
    """Against a model, while things come and go: what is held keeps its number, and nothing else is remembered."""
    random = Random(3)
    names = Names("t", 4, {b"fixed": 0})
    held: dict[bytes, tuple[int, int]] = {}  # number, and how often
    for _ in range(4000):
        text = random.choice([b"fixed", b"3", b"14", b"15", *(b"n%d" % n for n in range(20))])
        if text in held and random.random() < 0.6:
            number, count = held.pop(text)
            names.release(number)
            if count > 1:
                held[text] = number, count - 1
            continue
        names.settle()
        try:
            number = names.decode(text, "t")
        except EntityError:
            assert len(set(range(1, 15)) - {number for number, _ in held.values()}) == 0
            continue
        assert names.encode(number) == text
        assert held.get(text, (number, 0))[0] == number
        assert all(other == text for other, (taken, _) in held.items() if taken == number)
        assert (text == b"fixed") == (number == 0)
        if random.random() < 0.8:
            names.hold(number)
            held[text] = number, held.get(text, (number, 0))[1] + 1
    for number, count in held.values():
        for _ in range(count):
            names.release(number)
    names.settle()
    assert [names.encode(n) for n in range(16)] == [b"fixed", *(b"%d" % n for n in range(1, 16))]
    assert names.known(b"n1") is None


# Numbers of another width


def ternary(value: int, mask: int) -> Any:
    return p4r.FieldMatch(ternary=p4r.FieldMatch.Ternary(value=_octets(value), mask=_octets(mask)))


def prefix(value: int, length: int) -> Any:
    return p4r.FieldMatch(lpm=p4r.FieldMatch.LPM(value=_octets(value), prefix_len=length))


def span(low: int, high: int) -> Any:
    return p4r.FieldMatch(range=p4r.FieldMatch.Range(low=_octets(low), high=_octets(high)))


def _octets(value: int) -> bytes:
    return value.to_bytes((value.bit_length() + 7) // 8 or 1, "big")


FULL = 0xFFFFFFFF
# A table, a field of 32 bits that is 9 in the program, and the ports that it accepts.
WIDE = [
    ("by_mask", ternary(300, FULL), {300}),
    ("by_mask", ternary(1, 1), set(range(1, 510, 2))),
    ("by_mask", ternary(0, FULL ^ 0xFF), set(range(256))),
    ("by_prefix", prefix(300, 32), {300}),
    ("by_prefix", prefix(256, 24), set(range(256, 510))),
    ("by_range", span(10, 20), set(range(10, 21))),
    ("by_range", span(500, FULL), set(range(500, 510))),
]


@pytest.mark.parametrize(("table", "field", "ports"), WIDE)
def test_values_of_another_width_match_the_numbers_that_they_are(
    router: Router, table: str, field: Any, ports: set[int]
) -> None:
    router.switch.insert(router.entry("next_hops", {1: b"0"}, "send", b"1"))
    action, value = ("watch", _octets(7)) if table == "by_mask" else ("mark", b"\x07")
    entity = router.entry(table, {1: field}, action, value, priority=0 if table == "by_prefix" else 1)
    router.switch.insert(entity)
    marked = {port for port in range(510) if router.out(1, port=port)[0][1][5] == 7}
    assert marked == ports
    [found] = router.read(table)
    router.switch.insert(router.entry("next_hops", {1: b"3"}, "NoAction"))
    delete(router.switch, found)
    router.switch.insert(found)
    assert router.read(table) == [found]


@pytest.mark.parametrize(
    ("table", "field", "code", "text"),
    [
        ("by_mask", ternary(512, FULL), rpc_code.OUT_OF_RANGE, "0x200 does not fit in 9 bits"),
        ("by_mask", ternary(1 << 32, FULL), rpc_code.OUT_OF_RANGE, "does not fit in 32 bits"),
        ("by_mask", ternary(0, 0x200), rpc_code.INVALID_ARGUMENT, "the mask is zero"),
        ("by_prefix", prefix(0, 23), rpc_code.INVALID_ARGUMENT, r"prefix length 23 is not in 24..32"),
        ("by_range", span(0, FULL), rpc_code.INVALID_ARGUMENT, "the range is every value"),
        ("by_range", span(512, FULL), rpc_code.OUT_OF_RANGE, "does not fit in 9 bits"),
    ],
)
def test_what_the_program_has_no_bits_for_is_refused(
    router: Router, table: str, field: Any, code: int, text: str
) -> None:
    action = "watch" if table == "by_mask" else "mark"
    entity = router.entry(table, {1: field}, action, b"\x07", priority=0 if table == "by_prefix" else 1)
    found, message = refused(router.switch.insert, entity)
    assert found == code
    assert text in message
