# SPDX-License-Identifier: Apache-2.0
"""Groups whose members depend on ports, in a switch whose links fail and recover."""

import select
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from finsy.proto import p4i, p4r, rpc_code
from google.protobuf import text_format

from tests.gradlane_switch.switch_process import Controller, Process, admin
from tests.support.namespaces import Network, ip, socket_in
from tests.support.needs import needs_root
from tests.support.paths import SWITCH_PROGRAMS

pytestmark = needs_root
FLOWS = 64


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network(3, "w")
    yield made
    made.close()


def names() -> dict[str, int]:
    info = text_format.Parse((SWITCH_PROGRAMS / "attached.p4info.txtpb").read_text(), p4i.P4Info())
    parts = [*info.tables, *info.actions, *info.action_profiles]
    return {item.preamble.alias: item.preamble.id for item in parts}


def configure(controller: Controller) -> None:
    """Key 9 goes to port 2 or 3, by the flow, and neither is chosen while it is down."""
    ids = names()
    group = p4r.ActionProfileGroup(action_profile_id=ids["members"], group_id=1)
    for port in (2, 3):
        member = p4r.ActionProfileMember(action_profile_id=ids["members"], member_id=port)
        member.action.action_id = ids["send"]
        member.action.params.add(param_id=1, value=bytes([port]))
        controller.insert(p4r.Entity(action_profile_member=member))
        group.members.add(member_id=port, weight=1, watch_port=bytes([port]))
    controller.insert(p4r.Entity(action_profile_group=group))
    entry = p4r.TableEntry(table_id=ids["routes"], action=p4r.TableAction(action_profile_group_id=1))
    entry.match.add(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x09"))
    controller.insert(p4r.Entity(table_entry=entry))


def test_a_failed_link_takes_its_members_out_until_it_recovers(network: Network, tmp_path: Path) -> None:
    program = ["--program", f"{SWITCH_PROGRAMS}/attached.json", "--p4info", f"{SWITCH_PROGRAMS}/attached.p4info.txtpb"]
    ports = [word for k in (1, 2, 3) for word in ("-i", f"{k}@s{k}")]
    path = tmp_path / "admin.sock"
    prefix = ("ip", "netns", "exec", network.switch)
    address = f"unix:{tmp_path}/p4runtime.sock"
    hosts = {k: socket_in(network.host(k), socket.AF_PACKET, socket.SOCK_RAW, 0x0300) for k in (1, 2, 3)}
    for made in hosts.values():
        made.bind(("eth0", 3))
    with (
        Process(*program, *ports, "--admin", str(path), prefix=prefix, address=address) as process,
        Controller(process.address, 1) as controller,
    ):
        assert controller.arbitrate().status.code == rpc_code.OK
        configure(controller)
        spread = arrivals(hosts)
        assert spread[2]
        assert spread[3]
        ip("-n", network.host(3), "link", "set", "eth0", "down")
        process.wait_for("port 3 (s3): down")
        assert arrivals(hosts, 2) == {2: set(range(FLOWS))}
        ip("-n", network.host(3), "link", "set", "eth0", "up")
        process.wait_for("port 3 (s3): up")
        hosts[3].getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # That its interface was down.
        assert arrivals(hosts) == spread
        assert admin(path, {"op": "set", "port": 2, "up": False}) == {"ok": True}
        assert arrivals(hosts, 3) == {3: set(range(FLOWS))}
        assert admin(path, {"op": "set", "port": 2, "up": True}) == {"ok": True}
        assert arrivals(hosts) == spread
    for made in hosts.values():
        made.close()


def arrivals(hosts: dict[int, socket.socket], *only: int) -> dict[int, set[int]]:
    """Sends a packet of each flow from host 1; the flows that arrive at the others, until all have."""
    frames = [bytes([1, 9]) + flow.to_bytes(2, "big") + bytes(56) for flow in range(FLOWS)]
    for frame in frames:
        hosts[1].send(frame)
    found: dict[int, set[int]] = {k: set() for k in only or (2, 3)}
    while sum(map(len, found.values())) < FLOWS:
        readable, _, _ = select.select([hosts[k] for k in found], [], [], 5)
        assert readable, f"only {found} arrived"
        for k, flows in found.items():
            if hosts[k] in readable and (frame := hosts[k].recv(2048)) in frames:
                flows.add(frames.index(frame))
    return found
