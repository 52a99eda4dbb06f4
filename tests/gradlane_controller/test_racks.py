# SPDX-License-Identifier: Apache-2.0
"""In which racks a job's hosts are, and how thin the core is, by the fabric file."""

from collections.abc import Sequence

import pytest

from gradlane.job.racks import Racks
from gradlane_controller.network import fabric_file
from gradlane_controller.network.racks import racks

Link = tuple[str, str, str]


def found(
    hosts: dict[str, str], links: Sequence[Link], of: Sequence[str], switches: Sequence[str] = ()
) -> Racks | None:
    """Of workers at the hosts `of`. `hosts`: the switch of each, all at 10 Gbit/s; links have rates."""
    names = list(switches) or sorted({*hosts.values(), *(end for a, b, _ in links for end in (a, b))})
    ports = dict.fromkeys(names, 0)

    def next_port(switch: str) -> int:
        ports[switch] += 1
        return ports[switch]

    text = "".join(
        f'[[switch]]\nname = "{name}"\ndevice_id = {number}\naddress = "127.0.0.1:{number}"\n'
        f'target = "gradlane-switch"\n'
        for number, name in enumerate(names, 1)
    )
    for number, (host, switch) in enumerate(hosts.items(), 1):
        text += (
            f'[[port]]\nswitch = "{switch}"\nnumber = {next_port(switch)}\nhost = "{host}"\n'
            f'mac = "02:02:00:00:00:{number:02x}"\nhost_mac = "02:03:00:00:00:{number:02x}"\n'
            f'address = "10.0.0.{number}"\nrate = "10gbit"\nbuffer = "200kB"\n'
        )
    for a, b, rate in links:
        ends = f'"{a}:{next_port(a)}", "{b}:{next_port(b)}"'
        text += f'[[link]]\nends = [{ends}]\nrate = "{rate}"\nbuffer = "200kB"\n'
    fabric = fabric_file.parse(text, "f.toml")
    return racks(fabric, fabric.host_ports(of))


def leaf_spine(leaves: int, members: int, spines: int, rate: str) -> tuple[dict[str, str], list[Link]]:
    hosts = {f"h{leaf}-{k}": f"leaf{leaf}" for leaf in range(leaves) for k in range(members)}
    return hosts, [(f"leaf{leaf}", f"spine{s}", rate) for leaf in range(leaves) for s in range(spines)]


@pytest.mark.parametrize(("rate", "times"), [("19gbit", 1.05), ("10gbit", 2.0), ("5gbit", 4.0)])
def test_of_a_leaf_spine_it_is_hosts_by_links_up(rate: str, times: float) -> None:
    hosts, links = leaf_spine(3, 4, 2, rate)
    assert found(hosts, links, list(hosts)) == Racks((0,) * 4 + (1,) * 4 + (2,) * 4, times)


@pytest.mark.parametrize("rate", ["20gbit", "40gbit"])
def test_where_links_up_carry_all_that_hosts_send_small_racks_do_not_matter(rate: str) -> None:
    """Four of 12 workers and of 16 make rows as long as there are of them, and four of 20 do not."""
    for leaves in (3, 4):
        hosts, links = leaf_spine(leaves, 4, 2, rate)
        it = found(hosts, links, list(hosts))
        assert it is not None
        assert (len(set(it.of)), it.oversubscription) == (leaves, 1.0 if rate == "20gbit" else 0.5)
    hosts, links = leaf_spine(5, 4, 2, rate)
    assert found(hosts, links, list(hosts)) is None


def test_of_the_racks_that_a_job_is_in_all_hosts_count() -> None:
    """As others' jobs may be there, too. Ranks may be in any order."""
    hosts, links = leaf_spine(3, 4, 2, "5gbit")
    links[2:4] = [("leaf1", "spine0", "1gbit"), ("leaf1", "spine1", "1gbit")]
    assert found(hosts, links, ["h2-0", "h0-1", "h2-3", "h0-0"]) == Racks((1, 0, 1, 0), 4.0)
    assert found(hosts, links, ["h1-0", "h1-1"]) is None, "they are in one"


def test_at_one_switch_there_is_nothing_between_them() -> None:
    assert found({"a": "s", "b": "s", "c": "s"}, [], ["c", "a", "b"]) is None


def test_a_leaf_with_fewer_links_up_is_the_thinnest() -> None:
    """One leaf has two links to a spine, beside one to the other; one has lost its second link."""
    hosts, _ = leaf_spine(3, 4, 2, "")
    links = [("leaf0", "spine0", "10gbit"), ("leaf0", "spine0", "10gbit"), ("leaf0", "spine1", "20gbit")]
    links += [("leaf1", "spine0", "20gbit"), ("leaf1", "spine1", "20gbit"), ("leaf2", "spine0", "10gbit")]
    it = found(hosts, links, list(hosts))
    assert it is not None
    assert it.oversubscription == 4.0


def test_under_three_tiers_the_thinnest_one_counts_and_pods_stay_together() -> None:
    """Two pods of two leaves, that carry half of what leaves carry: half of what leaves a rack goes to the other pod.
    Leaves are listed in turn, and are numbered by pods."""
    order = ["p0a", "p1a", "p0b", "p1b"]
    hosts = {f"h{leaf}-{k}": leaf for leaf in order for k in range(3)}
    links: list[Link] = [(leaf, f"{leaf[:2]}up", "30gbit") for leaf in order]
    links += [("p0up", "top", "10gbit"), ("p1up", "top", "10gbit")]
    it = found(hosts, links, list(hosts), [*order, "p0up", "p1up", "top"])
    assert it is not None
    assert [it.of[3 * k] for k in range(4)] == [0, 2, 1, 3]
    # Six hosts send two thirds of 60 Gbit/s to the other pod, over 10.
    assert it.oversubscription == pytest.approx(4.0)


def test_switches_in_a_line_have_a_core_too() -> None:
    """The middle link carries what both hosts of one half send to the other half."""
    hosts = {"a": "s1", "b": "s2", "c": "s3", "d": "s4"}
    it = found(hosts, [("s1", "s2", "10gbit"), ("s2", "s3", "10gbit"), ("s3", "s4", "10gbit")], ["a", "b", "c", "d"])
    assert it is not None
    assert it.of == (0, 1, 2, 3)
    assert it.oversubscription == pytest.approx(4 / 3, abs=0.01)
