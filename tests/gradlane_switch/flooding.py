# SPDX-License-Identifier: Apache-2.0
"""A program that tells the controller of every packet, in the way that its first byte names; and a sender of such."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from finsy.proto import p4r
from google.protobuf import text_format

from gradlane_switch import Switch
from gradlane_switch.state.pipeline import Pipeline
from gradlane_switch.state.program_state import Lock
from tests.gradlane_switch.small_programs import action, assign, const, entry, field, p4info, program, table

CPU = 500
STATIONS = 1 << 16
KINDS = PUNTED, LEARNED, CLONED = 1, 2, 3
DIGEST = 0x17000001
_SESSION = 1


def punting() -> tuple[dict[str, Any], Any]:
    """The program as BMv2 JSON, and its P4Info.

    Table `stations` has a key of 48 bits and counters, and does nothing; `kinds` does what the first byte names.
    Values of the digest are the kind and those 48 bits.
    """
    drop = assign(field("standard_metadata", "egress_spec"), const(511))
    learn = {"op": "generate_digest", "parameters": [const(1), const(1)]}
    copy = {"op": "clone_ingress_pkt_to_egress", "parameters": [const(_SESSION), const(1)]}
    actions = [
        action(0, "nothing", []),
        action(1, "punt", [], assign(field("standard_metadata", "egress_spec"), const(CPU))),
        action(2, "learn", [], learn, drop),
        action(3, "copy", [], copy, drop),
        action(4, "drop", [], drop),
    ]
    stations = table(0, "stations", [("exact", field("h", "value"))], actions[:1], actions[0], following="kinds")
    stations |= {"max_size": STATIONS, "with_counters": True, "support_timeout": True}
    kinds = table(1, "kinds", [("exact", field("h", "kind"))], actions[1:], actions[4])
    elements = [field("h", "kind"), field("h", "value")]
    document = program(
        [("kind", 8), ("value", 48), ("rest", 56)],
        actions,
        [stations, kinds],
        learn_lists=[{"id": 1, "name": "seen", "elements": elements}],
        field_lists=[{"id": 1, "name": "none", "elements": []}],
    )
    info = p4info(document)
    counter = info.direct_counters.add(direct_table_id=info.tables[0].preamble.id)
    counter.preamble.id, counter.preamble.name = 0x13000001, "counts"
    counter.spec.unit = counter.spec.BOTH
    info.tables[0].direct_resource_ids.append(counter.preamble.id)
    info.tables[0].idle_timeout_behavior = info.tables[0].NOTIFY_CONTROL
    digest = info.digests.add()
    digest.preamble.id, digest.preamble.name, digest.type_spec.struct.name = DIGEST, "seen", "seen"
    for name, width in (("kind", 8), ("value", 48)):
        member = info.type_info.structs["seen"].members.add(name=name)
        member.type_spec.bitstring.bit.bitwidth = width
    return document, info


def punting_switch(*changed: Any) -> Switch:
    """A switch without ports that runs it, or what it was changed into."""
    document, info = changed or punting()
    switch = Switch(Pipeline(json.dumps(document).encode(), info, Lock()))
    switch.cpu_port = CPU
    for made in kind_entries():
        switch.insert(made)
    return switch


def write_files(folder: Path) -> tuple[Path, Path]:
    """The program and its P4Info, as files."""
    document, info = punting()
    paths = folder / "punting.json", folder / "punting.p4info.txtpb"
    paths[0].write_text(json.dumps(document))
    paths[1].write_text(text_format.MessageToString(info))
    return paths


def kind_entries() -> list[Any]:
    """What packets need to be told of."""
    session = p4r.Entity()
    clone = session.packet_replication_engine_entry.clone_session_entry
    clone.session_id = _SESSION
    clone.replicas.add(port=CPU.to_bytes(2, "big"), instance=1)
    return [session, *(entry(2, [exact(bytes([kind]))], kind + 1) for kind in KINDS)]


def digest_entry(**config: int) -> Any:
    """Wants the digest, as p4.v1.DigestEntry.Config says."""
    return p4r.Entity(digest_entry=p4r.DigestEntry(digest_id=DIGEST, config=p4r.DigestEntry.Config(**config)))


def station(number: int, **fields: Any) -> Any:
    """An entry of `stations`."""
    made = entry(1, [exact(number.to_bytes(6, "big").lstrip(b"\0") or b"\0")], 1)
    for name, value in fields.items():
        setattr(made.table_entry, name, value)
    return made


def exact(value: bytes) -> Any:
    return p4r.FieldMatch(field_id=1, exact=p4r.FieldMatch.Exact(value=value))


def frame(kind: int, value: int = 0, size: int = 84) -> bytes:
    """A frame of a kind, with that value."""
    return (bytes([kind]) + value.to_bytes(6, "big")).ljust(size, b"\0")


class Flood:
    """Sends frames of one kind to interfaces, as fast as it can, until it is left as a context manager.

    `varied`: the values differ. It gives way to the switch and its controller somewhat: a host would be elsewhere.
    """

    def __init__(self, sender: Path, namespace: str, interfaces: list[str], kind: int, *, varied: bool) -> None:
        words = ["ip", "netns", "exec", namespace, "nice", "-n", "8", str(sender), "flood"]
        self._words = [*words, "5" if varied else "-1", frame(kind).hex(), *interfaces]
        self._stack = ExitStack()

    def __enter__(self) -> Flood:
        process = self._stack.enter_context(subprocess.Popen(self._words))
        self._stack.callback(process.terminate)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


@contextmanager
def priority() -> Iterator[None]:
    """Of this process and those that it starts within: what else runs on this machine is not what is measured.

    Linux gives each thread its own: those that gRPC has from earlier tests, too, else the answers wait for them.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)
    _prioritise(-20)
    try:
        yield
    finally:
        _prioritise(before)


def _prioritise(nice: int) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), nice)
