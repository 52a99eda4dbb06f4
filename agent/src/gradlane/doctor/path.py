# SPDX-License-Identifier: Apache-2.0
"""Checks of the path to a job's other ranks: route, next hop, path MTU, control port, DSCP."""

import errno
import socket
from collections.abc import Collection, Iterator
from ipaddress import ip_address

from gradlane import wire
from gradlane.doctor import probe
from gradlane.doctor.findings import FAIL, OK, WARN, Finding, judge
from gradlane.doctor.interface import Interface, ip
from gradlane.errors import GradlaneError
from gradlane.job import Job, Member, headers, largest_slice

CONNECT_SECONDS = 5.0
LONGEST_PACKET = 65535  # of IP; the loopback interface takes more
DEAD_NEIGHBOUR = {"FAILED", "INCOMPLETE"}


def checks(job: Job, mine: Member, interface: Interface | None) -> Iterator[Finding]:
    """Of the paths from rank `mine` to all others."""
    for member in job.members:
        if member.rank != mine.rank:
            yield from _peer(job, mine, member, interface)


def _peer(job: Job, mine: Member, peer: Member, interface: Interface | None) -> Iterator[Finding]:
    name = job.name_of(peer.rank)
    if mine.address.version != peer.address.version:
        yield Finding(FAIL, name, f"this host's {mine.address} is of another IP version", "correct the job file")
        return
    try:
        (route,) = ip("route", "get", str(peer.address), "from", str(mine.address))
    except GradlaneError as error:
        yield Finding(FAIL, name, f"no route: {error}", f"ip route add {peer.address} via GATEWAY")
        return
    mtu = min(interface.mtu, LONGEST_PACKET) if interface is not None else 1500
    found = probe.path_mtu(mine.address, peer.address, mtu)
    hop = str(route.get("gateway") or peer.address)
    states = {state for entry in ip("neighbor", "show", hop) for state in entry.get("state", [])}
    if states & DEAD_NEIGHBOUR:
        yield Finding(
            FAIL,
            name,
            f"the next hop, {hop} by {route['dev']}, does not answer: the switch, its port or the host is down",
            f"look at the cable, the switch's port and `ip neighbor show {hop}`",
        )
        return
    yield Finding(OK, name, f"route by {route['dev']}" + (f", next hop {hop}" if "gateway" in route else ""))
    yield from _mtu(job, mine, name, mtu, found, peer)
    yield _control(mine, name, peer)
    yield from _dscp(job, mine, name, peer)


def _mtu(job: Job, mine: Member, name: str, mtu: int, found: probe.Answer, peer: Member) -> Iterator[Finding]:
    wanted = job.transport.slice_bytes
    needed = 0 if wanted is None else wanted + headers(mine.address.version)
    if found.error:
        yield Finding(FAIL, name, f"a datagram does not get there: {found.error}", "look at routes and firewalls")
    elif found.arrived is None and probe.send(mine.address, peer.address, probe.SMALL).arrived:
        yield Finding(
            FAIL,
            name,
            f"packets of {mtu} bytes vanish without an ICMP answer, small ones arrive: a link has a smaller MTU",
            "give all links and switches of the path the MTU of the hosts, or this host a smaller one",
        )
    elif found.arrived is None:
        yield Finding(
            WARN, name, "path MTU can't be seen: no ICMP answers (does a firewall drop them?)",
            "let ICMP port unreachable and fragmentation needed pass",
        )  # fmt: skip
    else:
        fits = found.mtu >= needed
        yield judge(
            fits,
            name,
            f"path MTU {found.mtu}" + ("" if fits else f"; slices of {wanted} bytes need {needed}"),
            'slice_bytes = "auto" in the job file, or a larger MTU on the whole path',
            FAIL,
        )
        most = largest_slice(found.mtu, mine.address.version)
        if wanted is not None and 2 * wanted <= most:
            yield Finding(
                WARN, name, f"slices have {wanted} bytes, and may have {most}, at less CPU time",
                'slice_bytes = "auto" in the job file',
            )  # fmt: skip
        if found.mtu < mtu:
            yield Finding(
                WARN, name, f"a link of the path carries {found.mtu} bytes, this host's interface {mtu}",
                "give all links of the fabric the same MTU",
            )  # fmt: skip


def _control(mine: Member, name: str, peer: Member) -> Finding:
    where = f"TCP port {wire.CONTROL_PORT}"
    try:
        with socket.create_connection((str(peer.address), wire.CONTROL_PORT), CONNECT_SECONDS, (str(mine.address), 0)):
            return Finding(OK, name, f"an agent takes control connections ({where})")
    except ConnectionRefusedError:
        return Finding(FAIL, name, f"no agent runs there ({where} is closed)", "start it there: gradlane agent")
    except TimeoutError:
        fix = f"open TCP and UDP {wire.CONTROL_PORT} and UDP {wire.UDP_PORT} between the hosts"
        return Finding(FAIL, name, f"{where} does not answer: the host is down, or a firewall blocks it", fix)
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            return Finding(FAIL, name, f"this host has no {mine.address}", "correct the job file")
        return Finding(FAIL, name, f"{where}: {error.strerror}", "look at routes and firewalls")


def _dscp(job: Job, mine: Member, name: str, peer: Member) -> Iterator[Finding]:
    wanted = {wire.CONTROL_DSCP}
    if job.transport.tagging == "host":
        wanted |= {row.queue_class << 3 for row in job.policy.queue_classes}
    try:
        arrived = {dscp: probe.arriving_class(mine.address, peer.address, dscp << 2) for dscp in sorted(wanted)}
    except PermissionError:
        yield Finding(WARN, name, "whether DSCP is kept can't be seen without CAP_NET_RAW", "run it as root")
        return
    changed = [f"{d} arrives as {c >> 2}" for d, c in arrived.items() if c is not None and c >> 2 != d]
    seen = [dscp for dscp, found in arrived.items() if found is not None]
    if changed:
        yield Finding(
            WARN, name, f"DSCP {', '.join(changed)}: control and gradients wait among other traffic",
            "let the switches trust and keep DSCP (docs/commodity-switches.md)",
        )  # fmt: skip
    elif seen:
        yield Finding(OK, name, f"DSCP {', '.join(map(str, seen))} arrives unchanged")
    else:
        yield Finding(WARN, name, "whether DSCP is kept can't be seen: nothing answers", "let ICMP unreachable pass")


def own_member(job: Job, served: Collection[str]) -> Member | None:
    """The member of the job whose address the agent serves (`served`), or otherwise one whose address this host has."""
    for member in job.members:
        if str(member.address) in served:
            return member
    mine = {ip_address(e["local"]) for link in ip("address") for e in link.get("addr_info", []) if "local" in e}
    return next((member for member in job.members if member.address in mine), None)
