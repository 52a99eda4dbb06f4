# SPDX-License-Identifier: Apache-2.0
"""`gradlane doctor`: checks this host, its agent and the path to a job's peers, and says how to fix what is wrong."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from gradlane import job
from gradlane.client import agent_socket
from gradlane.commands import flags
from gradlane.daemon import config
from gradlane.daemon.config import DEFAULT_FILE
from gradlane.doctor import host, interface, path
from gradlane.doctor.card import System
from gradlane.doctor.findings import FAIL, OK, WARN, Finding
from gradlane.errors import AgentError, GradlaneError
from gradlane.ipc.status import AgentStatus
from gradlane.toml_file import Address
from gradlane.units import checked


def add(parser: argparse.ArgumentParser) -> None:
    """Its flags."""
    parser.add_argument("--job", type=Path, metavar="FILE", help="also check the paths to the other ranks of this job")
    parser.add_argument(
        "--address",
        type=checked(config.parse_address),
        metavar="IP",
        help="this host's address, if neither a running agent nor a job file has it",
    )
    flags.json(parser)
    flags.socket(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """0 if nothing failed (warnings may be there), otherwise 1. Raises JobError."""
    failed = warned = 0
    findings: list[Finding] = []
    for finding in _checks(options):
        failed += finding.state == FAIL
        warned += finding.state == WARN
        findings.append(finding)
        if not options.json:
            print(finding.line(), flush=True)
    if options.json:
        print(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        print(f"{len(findings)} checks: {failed} failed, {warned} warning(s)")
    return 1 if failed else 0


def _checks(options: argparse.Namespace) -> Iterator[Finding]:
    parsed = job.load(options.job) if options.job else None
    status, finding = _agent(options.socket)
    yield finding
    if status is not None:
        for fallback in status.get("transport", {}).get("fallbacks", []):
            yield Finding(WARN, "agent", fallback, "docs/agent.md, permissions; then restart the agent")
    yield from host.checks()
    member = path.own_member(parsed, status["addresses"] if status else ()) if parsed else None
    if parsed is not None and member is None:
        yield Finding(
            FAIL, "job", f"{parsed.file}: no rank has an address of this host", "correct the job file, or run it there"
        )
    if parsed is not None and member is not None and status and str(member.address) not in status["addresses"]:
        mine = ", ".join(status["addresses"])
        text = f"rank {member.rank} has {member.address}, but the agent serves {mine}"
        yield Finding(FAIL, "job", text, f"set `address` of {DEFAULT_FILE}, and restart the agent")
    addresses = [member.address] if member else _addresses(options, status)
    if not addresses and parsed is None:
        yield Finding(WARN, "interface", "not checked: no agent or job file says this host's address", "use --address")
    for address in addresses:
        found = interface.find(address)
        yield from interface.checks(address, found, None if status is None else status["pid"], System())
        if parsed is not None and member is not None:
            yield from path.checks(parsed, member, found)


def _agent(socket: Path) -> tuple[AgentStatus | None, Finding]:
    try:
        status = agent_socket.status(socket)
    except AgentError as error:
        fix = "systemctl status gradlane-agent; journalctl -u gradlane-agent"
        if isinstance(error.__cause__, PermissionError):
            fix = "run it as root, or as a member of the socket's group"
        return None, Finding(FAIL, "agent", str(error), fix)
    return status, Finding(OK, "agent", f"runs (pid {status['pid']}, {', '.join(status['addresses'])}, {socket})")


def _addresses(options: argparse.Namespace, status: AgentStatus | None) -> list[Address]:
    if options.address:
        return [options.address]
    if status is not None:
        return [config.parse_address(text) for text in status["addresses"]]
    try:
        found = config.load_default()
    except GradlaneError:
        return []  # `gradlane config check` says what is wrong with it
    return list(found.addresses) if found else []
