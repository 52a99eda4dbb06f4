# SPDX-License-Identifier: Apache-2.0
"""What the switch has to hold for a fabric and jobs, and which jobs can't live together."""

import re
from collections.abc import Callable

import pytest
from finsy import P4DigestEntry, P4IndirectAction, P4MeterConfig, P4MeterEntry, P4MulticastGroupEntry, P4TableEntry

from gradlane import job
from gradlane.job import JobError
from gradlane_controller.network import fabric, fabric_file
from gradlane_controller.policy import Entity, Numbers, desired_entities
from gradlane_controller.session.bounds import MESSAGES_PER_SECOND
from tests.gradlane_controller.texts import fabric_text, job_text


def rows(entities: list[Entity], table: str) -> list[tuple[dict[str, object], str, dict[str, object]]]:
    return [
        (dict(entity.match or {}), entity.action.name, entity.action.args)
        for entity in entities
        if isinstance(entity, P4TableEntry) and entity.table_id == table
    ]


@pytest.fixture
def entities() -> Callable[..., list[Entity]]:
    def make(*jobs: str) -> list[Entity]:
        parsed = [job.parse(text, f"job{number}.toml") for number, text in enumerate(jobs)]
        return desired_entities(fabric_file.parse(fabric_text(), "f.toml"), parsed)["s1"]

    return make


def test_a_fabric_without_jobs_forwards_and_classifies(entities: Callable[..., list[Entity]]) -> None:
    it = entities()
    assert rows(it, "ipv4_routes")[0] == ({"destination": "10.0.1.0/24"}, "set_next_hop", {"group": 1})
    assert next_hops(it)[1] == [(1, 1, "02:00:00:00:01:02", "02:00:00:00:01:01")]
    assert rows(it, "ports")[3] == ({"ingress_port": 4}, "edge", {"switch_id": 1})
    assert rows(it, "stations")[1] == ({"destination": "02:00:00:00:02:01"}, "route", {})
    assert rows(it, "bridged")[2] == ({"destination": "02:00:00:00:03:02"}, "bridge_to", {"port": 3})
    assert [args["queue_class"] for _, _, args in rows(it, "dscp_classes")] == [5, 7]
    for table in ("senders", "jobs", "port_policies", "job_shares", "ipv6_routes", "dscp_rewrites"):
        assert not rows(it, table)
    # Routes, groups, ports, stations, bridged, two sources, virtual queues, rates of control and six of punts; the way
    # of probes; classes; digest; budget shares.
    assert len(it) == (5 + 2 + 2 + 6) * 4 + 1 + 2 + 1 + 3


def next_hops(entities: list[Entity]) -> dict[object, list[tuple[object, ...]]]:
    """By group: weight, port (which must be the watched one), next hop's and own address of each member."""
    found: dict[object, list[tuple[object, ...]]] = {}
    for it in entities:
        if isinstance(it, P4TableEntry) and isinstance(it.action, P4IndirectAction):
            found[dict(it.match or {})["group"]] = members = []
            for (weight, watched), call in it.action.action_set or ():
                assert watched == call.args["port"]
                members.append((weight, watched, call.args["next_hop"], call.args["own"]))
    return found


def test_bmv2_is_not_told_to_watch_the_only_port_of_a_group() -> None:
    for target, weight in (("gradlane-switch", (1, 1)), ("bmv2", 1)):
        it = desired_entities(fabric_file.parse(fabric_text(target=target), "f.toml"), [])["s1"]
        first = next(each for each in it if isinstance(each, P4TableEntry) and each.table_id == "next_hops")
        assert isinstance(first.action, P4IndirectAction)
        assert [member[0] for member in first.action.action_set or ()] == [weight]


def test_what_the_controller_is_told_is_limited(entities: Callable[..., list[Entity]]) -> None:
    meters = [it for it in entities() if isinstance(it, P4MeterEntry) and it.meter_id == "punt_rates"]
    assert [meter.index for meter in meters] == [8 * port + of for port in (1, 2, 3, 4) for of in (0, 1, 2, 3, 6, 7)]
    assert {(meter.config.pir, meter.config.pburst) for meter in meters if meter.config} == {(100, 100)}
    assert [it.digest_id for it in entities() if isinstance(it, P4DigestEntry)] == ["guard_violation_t"]


def test_many_hosts_together_tell_the_controller_no_more_than_it_takes_of_a_switch() -> None:
    begin, *ports, end = re.split(r"(?=\n\[\[port\]\]|\n\[\[dscp\]\])", fabric_text())
    many = "".join(
        ports[0]
        .replace(".1.2", f".{n}.2")
        .replace("00:01:", f"00:{n:02x}:")
        .replace("h1", f"h{n}")
        .replace("10.0.1.0", f"10.0.{n}.0")
        .replace("number = 1", f"number = {n}")
        for n in range(1, 101)
    )
    it = desired_entities(fabric_file.parse(begin + many + end, "f.toml"), [])["s1"]
    rates = [
        each.config.cir
        for each in it
        if isinstance(each, P4MeterEntry) and each.meter_id == "punt_rates" and each.config
    ]
    assert len(rates) == 600
    assert 3000 < sum(rates) < MESSAGES_PER_SECOND


def test_the_virtual_queue_has_the_rate_of_the_link_and_turns_at_the_thresholds(
    entities: Callable[..., list[Entity]],
) -> None:
    meters = [it for it in entities() if isinstance(it, P4MeterEntry) and it.meter_id == "virtual_queue"]
    assert [meter.index for meter in meters] == [1, 2, 3, 4]
    assert meters[0].config == P4MeterConfig(cir=12_500_000, pir=12_500_000, cburst=16_000, pburst=32_000)


@pytest.mark.parametrize(
    ("rate", "buffer", "yellow"),
    [
        ("100mbit", "64kB", 16_000),  # a quarter
        ("100mbit", "1MB", 31_250),  # 2.5 ms
        ("1mbit", "64kB", 6056),  # four frames
        ("1mbit", "8kB", 2000),
    ],
)
def test_thresholds_are_derived_from_rate_and_buffer_where_the_file_states_none(
    rate: str, buffer: str, yellow: int
) -> None:
    text = fabric_text().replace("[thresholds]\nyellow = 0.25\nred = 0.5\n", "")
    assert "thresholds" not in text
    text = text.replace('rate = "100mbit"', f'rate = "{rate}"').replace('buffer = "64kB"', f'buffer = "{buffer}"')
    it = desired_entities(fabric_file.parse(text, "f.toml"), [])["s1"]
    meters = [each for each in it if isinstance(each, P4MeterEntry) and each.meter_id == "virtual_queue"]
    assert {(each.config.cburst, each.config.pburst) for each in meters if each.config} == {(yellow, 2 * yellow)}


def test_every_rank_is_permitted_at_its_port_only(entities: Callable[..., list[Entity]]) -> None:
    it = entities(job_text(number=9, hosts=(1, 3), servers=(4,), base=4096, mask=1023))
    assert rows(it, "senders") == [
        (
            {"ingress_port": port, "source": f"::ffff:10.0.{port}.2", "job": 9},
            "permit",
            {},
        )
        for port in (1, 3, 4)
    ]
    number = {"job_index": 1, "slot_base": 4096, "slot_mask": 1023, "max_share": 65535}
    assert rows(it, "jobs") == [({"job": 9}, "set_job", {**number, "trim": 0, "spray": 1})]
    assert [match["egress_port"] for match, _, _ in rows(it, "port_policies")] == [1, 3, 4]


def test_tags_come_from_the_job_and_fields_that_match_everything_are_left_out(
    entities: Callable[..., list[Entity]],
) -> None:
    it = entities(job_text())
    assert rows(it, "queue_classes") == [
        ({"job": 1, "layer": (0, 3)}, "set_queue_class", {"queue_class": 6}),
        ({"job": 1, "layer": (4, 65535)}, "set_queue_class", {"queue_class": 5}),
    ]
    assert rows(it, "drop_precedences") == [
        ({"job": 1, "magnitude": (0, 63)}, "set_drop_precedence", {"drop_precedence": 3}),
        ({"job": 1, "layer": (0, 10), "magnitude": (64, 127)}, "set_drop_precedence", {"drop_precedence": 2}),
    ]
    tagged = ("queue_classes", "drop_precedences")
    assert all(entity.priority > 0 for entity in it if isinstance(entity, P4TableEntry) and entity.table_id in tagged)


def test_best_effort_fills_the_virtual_queue_only_where_gradients_share_its_class(
    entities: Callable[..., list[Entity]],
) -> None:
    with_priority = rows(entities(job_text(policy="yellow = 3\nred = 2")), "port_policies")
    assert with_priority[0][2] == {"lowest_metered_class": 1, "yellow": 3, "red": 2, "to_fabric": 0}
    without = entities(job_text(policy="priority = false"))
    assert rows(without, "port_policies")[0][2]["lowest_metered_class"] == 0
    assert not rows(without, "queue_classes")
    assert rows(without, "drop_precedences")


def test_each_aggregator_has_a_group_of_all_workers(entities: Callable[..., list[Entity]]) -> None:
    direct = job_text(transport='multicast = "239.1.0.1"')
    with_servers = job_text("ps", 2, hosts=(1, 2), servers=(3,), base=8192, transport='multicast = "239.2.0.1"')
    it = entities(direct, with_servers)
    groups = {entity.multicast_group_id: entity.replicas for entity in it if isinstance(entity, P4MulticastGroupEntry)}
    assert groups == {1: (1, 2), 2: (1, 2), 4097: (1, 2)}
    replicated = {
        match["destination"]: args["group"] for match, name, args in rows(it, "ipv4_routes") if name == "replicate"
    }
    assert replicated == {"239.1.0.1/32": 1, "239.1.0.2/32": 2, "239.2.0.1/32": 4097}
    # Hosts send to the group's Ethernet address, which several groups may share.
    assert [match["destination"] for match, _, _ in rows(it, "stations")][4:] == [
        "01:00:5e:01:00:01", "01:00:5e:01:00:02", "01:00:5e:02:00:01",
    ]  # fmt: skip
    same = job_text("ps", 2, servers=(3,), base=8192, transport='multicast = "239.129.0.1"')
    assert len(rows(entities(direct, same), "stations")) == 4 + 2


def test_only_an_aggregators_port_leads_to_its_group(entities: Callable[..., list[Entity]]) -> None:
    direct = job_text(transport='multicast = "239.1.0.1"')
    with_servers = job_text("ps", 2, hosts=(1, 2), servers=(3,), base=8192, transport='multicast = "239.2.0.1"')
    assert rows(entities(direct, with_servers), "aggregators") == [
        ({"ingress_port": port, "group": group, "job": number}, "admit", {})
        for port, group, number in ((1, 1, 1), (2, 2, 1), (3, 4097, 2))
    ]


def test_a_host_sends_from_its_own_addresses_and_those_of_members_are_known(
    entities: Callable[..., list[Entity]],
) -> None:
    found = rows(entities(job_text(hosts=(1, 3))), "sources")
    assert found == [
        ({"ingress_port": n, "mac": f"02:00:00:00:0{n}:02", "source": source}, "known", {"member": member})
        for n in (1, 2, 3, 4)
        for source, member in (("::", 0), (f"::ffff:10.0.{n}.2", int(n in (1, 3))))
    ]


def test_a_host_may_have_more_addresses_which_are_routed_and_no_members() -> None:
    text = fabric_text().replace(
        'address = "10.0.1.2"', 'address = "10.0.1.2"\nalso = ["10.0.1.3", "192.0.2.1", "fd00::1"]'
    )
    it = desired_entities(fabric_file.parse(text, "f.toml"), [job.parse(job_text(), "job.toml")])["s1"]
    at_first = {match["source"]: args["member"] for match, _, args in rows(it, "sources") if match["ingress_port"] == 1}
    more = {"::ffff:10.0.1.3": 0, "::ffff:192.0.2.1": 0, "fd00::1": 0}
    assert at_first == {"::": 0, "::ffff:10.0.1.2": 1} | more
    for table, address in (
        ("ipv4_routes", "10.0.1.3/32"),
        ("ipv4_routes", "192.0.2.1/32"),
        ("ipv6_routes", "fd00::1/128"),
    ):
        assert ({"destination": address}, "set_next_hop", {"group": 1}) in rows(it, table)


def test_what_a_host_sends_in_the_top_class_is_a_part_of_its_ports_rate(entities: Callable[..., list[Entity]]) -> None:
    meters = {
        it.index: it.config for it in entities() if isinstance(it, P4MeterEntry) and it.meter_id == "control_rates"
    }
    assert meters == dict.fromkeys(
        (1, 2, 3, 4), P4MeterConfig(cir=12_500_000 // 8, pir=12_500_000 // 8, cburst=16_000, pburst=32_000)
    )


def test_trimming_and_spraying_are_the_jobs_choice(entities: Callable[..., list[Entity]]) -> None:
    ((_, _, args),) = rows(entities(job_text(policy='on_congestion = "trim"\nspray = false')), "jobs")
    assert (args["trim"], args["spray"]) == (1, 0)


def test_jobs_that_meet_at_a_port_share_it_by_weight(entities: Callable[..., list[Entity]]) -> None:
    it = entities(job_text(), job_text("other", 2, hosts=(2, 3), base=4096, policy="weight = 3"))
    shares = [entry for entry in it if isinstance(entry, P4TableEntry) and entry.table_id == "job_shares"]
    assert [dict(share.match or {}) for share in shares] == [
        {"job_index": 1, "egress_port": 2}, {"job_index": 2, "egress_port": 2},
    ]  # fmt: skip
    assert [share.meter_config for share in shares] == [
        P4MeterConfig(cir=rate, pir=rate, cburst=16_000, pburst=32_000) for rate in (3_125_000, 9_375_000)
    ]
    assert {name: args for _, name, args in rows(it, "job_shares")} == {"set_share": {"queue_class_of_excess": 1}}


def test_a_job_keeps_its_index() -> None:
    where = fabric_file.parse(fabric_text(), "f.toml")
    first, second, third = (job.parse(job_text(f"j{n}", n, base=4096 * n), f"j{n}") for n in (1, 2, 3))

    def numbers(*jobs: job.Job, known: dict[int, int]) -> dict[object, object]:
        return {
            match["job"]: args["job_index"]
            for match, _, args in rows(desired_entities(where, jobs, Numbers(known))["s1"], "jobs")
        }

    assert numbers(first, second, known={}) == {1: 1, 2: 2}
    assert numbers(second, known={2: 2, 1: 1}) == {2: 2}
    assert numbers(third, second, known={2: 2}) == {3: 1, 2: 2}
    assert numbers(first, second, known={1: 5, 2: 5}) == {1: 5, 2: 1}  # known of switches that disagree
    assert numbers(first, second, known={1: 256, 2: 255}) == {1: 1, 2: 255}
    many = [job.parse(job_text(f"j{n}", n, base=256 * (n - 1), mask=255), f"j{n}") for n in range(1, 257)]
    found = numbers(*many[:255], known={256: 7, 3: 255})
    assert (sorted(found.values()), found[3]) == ([*range(1, 256)], 255)
    with pytest.raises(JobError, match="'j256' is one too many: a fabric carries 255 jobs"):
        desired_entities(where, many)


def test_hosts_of_one_subnet_are_routed_one_by_one_and_rewrites_are_at_their_port() -> None:
    text = fabric_text().replace("10.0.2.", "10.0.1.").replace('address = "10.0.1.2"', 'address = "10.0.1.3"', 1)
    text = text.replace("number = 1\n", 'number = 1\ngateway = "10.0.1.1"\n')
    text += "[[rewrite]]\nport = 4\ndscp = 43\nto = 10\n"
    it = desired_entities(fabric_file.parse(text, "f.toml"), [])["s1"]
    assert [match["destination"] for match, _, _ in rows(it, "ipv4_routes")] == [
        "10.0.1.3/32", "10.0.1.2/32", "10.0.3.0/24", "10.0.4.0/24", "10.0.1.1/32", "240.0.0.0/16",
    ]  # fmt: skip
    assert rows(it, "ipv4_routes")[4][1] == "local"
    assert rows(it, "dscp_rewrites") == [({"egress_port": 4, "dscp": 43}, "rewrite", {"dscp": 10})]


@pytest.mark.parametrize(
    ("change", "key", "reason"),
    [
        ({"name": "demo"}, "job.name", "have the same name"),
        ({"number": 1}, "job.id", "both have id 1"),
        ({"base": 4095, "mask": 7}, "slots.base", "overlap in budget slots: 0-4095 and 4095-4102"),
        ({"transport": 'multicast = "239.1.0.2"'}, "transport.multicast", "from 239.1.0.1 and 239.1.0.2 on"),
        ({"transport": 'multicast = "239.1.0.0"'}, "transport.multicast", "from 239.1.0.1 and 239.1.0.0 on"),
        ({"policy": "priority = false"}, "policy.priority", "share the port of host 'h1'"),
        ({"policy": "red = 2"}, "policy.red", "need the same red: 1 and 2"),
    ],
)
def test_jobs_that_collide_are_both_named(
    entities: Callable[..., list[Entity]], change: dict[str, object], key: str, reason: str
) -> None:
    first = job_text(transport='multicast = "239.1.0.1"')
    second = {"name": "other", "number": 2, "base": 4096, "transport": 'multicast = "239.1.0.3"'}
    assert entities(first, job_text(**second))
    with pytest.raises(JobError) as caught:
        entities(first, job_text(**{**second, **change}))
    assert (caught.value.file, caught.value.key) == ("job1.toml", key)
    assert reason in caught.value.reason
    assert "'demo' (job0.toml)" in caught.value.reason


@pytest.mark.parametrize(
    ("old", "new", "key", "reason"),
    [
        ('host = "h2"', 'host = "h7"', "rank 1", "host 'h7' is at no port of f.toml; its hosts are h1, h2, h3, h4"),
        ('"10.0.2.2"', '"10.0.2.9"', "rank 1", "10.0.2.9 is not that of 'h2' in f.toml: 10.0.2.2"),
        ('rate = "100mbit"', 'rate = "1gbit"', "transport.rate", "above the 100000000 bit/s of 'h1'"),
        ("[policy]", "slice_bytes = 7928\n[policy]", "transport.slice_bytes", "frames of 8006 bytes"),
        ("[policy]", 'multicast = "239.1.0.1"\n[policy]', "slots.mask", "2 multicast groups"),
    ],
)
def test_a_job_that_does_not_fit_the_fabric_is_refused(
    entities: Callable[..., list[Entity]], old: str, new: str, key: str, reason: str
) -> None:
    text = job_text(mask=3)
    assert old in text
    if key != "transport.slice_bytes":
        text = text.replace(old, new, 1)
        with pytest.raises(JobError) as caught:
            entities(text)
    else:  # a frame fits a 64 kB buffer's threshold, but not that of a small one
        fits = fabric_with_small_buffers()
        with pytest.raises(JobError) as caught:
            desired_entities(fits, [job.parse(text.replace(old, new, 1), "job0.toml")])
    assert (caught.value.file, caught.value.key) == ("job0.toml", key)
    assert reason in caught.value.reason


def fabric_with_small_buffers() -> fabric.Fabric:
    ports = "".join(
        f'[[port]]\nnumber = {n}\nhost = "h{n}"\nmac = "02:00:00:00:0{n}:01"\nhost_mac = "02:00:00:00:0{n}:02"\n'
        f'address = "10.0.{n}.2"\nrate = "100mbit"\nbuffer = "32kB"\n'
        for n in (1, 2)
    )
    return fabric_file.parse(f'[[switch]]\nname = "s1"\naddress = "127.0.0.1:9559"\n{ports}', "f.toml")
