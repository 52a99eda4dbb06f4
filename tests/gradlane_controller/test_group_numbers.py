# SPDX-License-Identifier: Apache-2.0
"""Which numbers groups of next hops have: as few routes as can be change when others come, fail, and come back."""

import pytest

from gradlane_controller.network import fabric_file
from gradlane_controller.network.fabric import MAX_PORT
from gradlane_controller.policy import Entity, desired_entities
from tests.gradlane_controller.test_policy_of_fabrics import group, leaves_and_spines, route
from tests.gradlane_controller.texts import leafspine_text


def test_a_group_keeps_its_number_when_others_come() -> None:
    def up(spines: int, more: str = "") -> object:
        return route(
            desired_entities(fabric_file.parse(leafspine_text(spines) + more, "f"), [])["leaf1"], "10.0.3.0/24"
        )

    third = '[[switch]]\nname = "leaf3"\naddress = "a:1"\n' + "".join(
        f'[[link]]\nends = ["leaf{a}:{40 + n}", "leaf3:{n}"]\nrate = "1gbit"\nbuffer = "64kB"\n'
        for n, a in enumerate((1, 1, 2), 1)
    )
    port = '[[port]]\nswitch = "leaf3"\nnumber = 9\nhost = "h9"\nmac = "02:00:00:00:09:01"\n'
    port += 'host_mac = "02:00:00:00:09:02"\naddress = "10.0.9.2"\nrate = "1gbit"\nbuffer = "64kB"\n'
    assert up(1) == 5
    assert up(2) != up(3)
    both = desired_entities(fabric_file.parse(leafspine_text() + third + port, "f"), [])["leaf1"]
    assert {port for _, port, _, _ in group(both, route(both, "10.0.9.2/32"))} == {41, 42}
    assert [weight for weight, port, _, _ in group(both, route(both, "10.0.3.0/24"))] == [1, 1, 10, 10]


def test_where_a_link_fails_a_group_changes_and_only_routes_that_no_longer_go_with_the_rest() -> None:
    """Else each route of a large fabric would be written anew, and what has failed be gone around late."""
    where = leaves_and_spines(*[range(4)] * 4)  # s0 to s3, and then spines

    def planned(*cut: tuple[str, str]) -> dict[str, list[Entity]]:
        away = [it for it in where.link_ports if {it.switch, it.peer} in map(set, cut)]
        return desired_entities(where, [], down={(it.switch, it.number) for it in away})

    def moved(switch: str, before: dict[str, list[Entity]], after: dict[str, list[Entity]]) -> set[str]:
        routes = (f"10.0.{n}.2/32" for n in range(4))
        return {it for it in routes if route(before[switch], it) != route(after[switch], it)}

    states = [planned(), planned(("s0", "s4")), planned(("s0", "s4"), ("s1", "s5"))]
    assert moved("s0", *states[:2]) == set(), "all go by the other links now"
    assert [moved(other, *states[:2]) for other in ("s1", "s2", "s3")] == 3 * [{"10.0.0.2/32"}]
    assert moved("s1", *states[1:]) == {"10.0.0.2/32"}, "most do, and it had left them"
    assert [moved(other, *states[1:]) for other in ("s0", "s2", "s3")] == 3 * [{"10.0.1.2/32"}]
    assert [len(group(it["s1"], route(it["s1"], "10.0.3.2/32"))) for it in states] == [4, 4, 3]
    two = planned(("s0", "s7"), ("s2", "s7"))
    assert moved("s1", states[0], two) == {"10.0.0.2/32", "10.0.2.2/32"}, "not those that go as before"
    away = planned(*((f"s{n}", "s4") for n in range(4)))
    assert not any(moved(leaf, states[0], away) for leaf in ("s0", "s1", "s2", "s3")), "a spine has failed"


def test_groups_whose_numbers_collide_have_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradlane_controller.policy.routes.crc32", lambda _: 3)
    it = desired_entities(leaves_and_spines(range(3), range(3), range(2)), [])["s0"]
    assert [(number, len(group(it, number))) for number in (route(it, "10.0.1.2/32"), route(it, "10.0.2.2/32"))] == [
        (MAX_PORT + 2, 3),
        (MAX_PORT + 1, 2),
    ]
