# SPDX-License-Identifier: Apache-2.0
"""A switch that runs the project's program between hosts in namespaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r
from google.protobuf import text_format

from tests.gradlane_switch.switch_process import Controller, Process, admin
from tests.support.namespaces import Network

HOSTS = 3


class Lab:
    """A switch in the network, with routes to every host."""

    def __init__(self, network: Network, folder: Path, program: Path, p4info: Path, *settings: str, seed: int) -> None:
        self.network = network
        self.admin_path = folder / "admin.sock"
        address = f"unix:{folder / 'p4runtime.sock'}"
        flags = ["--seed", str(seed), "--admin", str(self.admin_path)]
        for number, text in enumerate(settings, 1):
            flags += ["-i", f"{number}@s{number}{text and ','}{text}"]
        self.process = Process(*flags, prefix=("ip", "netns", "exec", network.switch), address=address)
        try:
            with Controller(address, 1) as controller:
                controller.arbitrate()
                controller.set_pipeline(program, p4info)
                controller.insert(*entries(text_format.Parse(p4info.read_text(), p4i.P4Info())))
        except BaseException:
            self.process.stop()
            raise

    def admin(self, **request: Any) -> dict[str, Any]:
        return admin(self.admin_path, request)

    def port(self, number: int) -> dict[str, Any]:
        return next(item for item in self.admin(op="ports")["ports"] if item["port"] == number)

    def stop(self) -> None:
        self.network.close_sockets()
        assert self.process.stop() == 0


def entries(info: Any) -> list[Any]:
    """Routes to the hosts, and a queue class for DSCP 46."""
    ids = {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions]}
    made: list[Any] = []
    for host in range(1, HOSTS + 1):
        lpm = p4r.FieldMatch.LPM(value=bytes([10, 0, host, 0]), prefix_len=24)
        message = p4r.TableEntry(table_id=ids["routes"], match=[p4r.FieldMatch(field_id=1, lpm=lpm)])
        message.action.action.action_id = ids["forward"]
        for number, value in enumerate([bytes([host]), b"\x02\0\0\0\0" + bytes([host]), b"\x02\0\0\0\0\xff"], 1):
            message.action.action.params.add(param_id=number, value=value)
        made.append(p4r.Entity(table_entry=message))
    exact = p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=b"\x2e"))
    message = p4r.TableEntry(table_id=ids["dscp_classes"], match=[exact])
    message.action.action.action_id = ids["set_queue_class"]
    message.action.action.params.add(param_id=1, value=b"\x05")
    return [*made, p4r.Entity(table_entry=message)]


def laboratory(network: Network, folder: Path, program: Path, p4info: Path) -> Iterator[Callable[..., Lab]]:
    """The body of a fixture: starts switches in the network, a port's settings each, and ends them."""
    running: list[Lab] = []

    def start(*settings: str, seed: int = 0, where: Network = network) -> Lab:
        own = folder / str(len(running))
        own.mkdir()
        running.append(Lab(where, own, program, p4info, *settings, seed=seed))
        return running[-1]

    yield start
    for made in running:
        if made.process.running:
            made.stop()
