# SPDX-License-Identifier: Apache-2.0
"""gradlane-switch and BMv2 with a program of the corpus: frames in, in windows; what left, and the state, out.

BMv2 answers nothing when it drops a frame. So behind each window go markers, frames that every program passes: one for
each port, as often as a frame of the program can pass egress. What comes before the last markers belongs to the window.
Both switches get the markers; they are no part of the result.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from finsy.proto import p4i, p4r

from gradlane_switch import Switch
from tests.differential.corpus import Program, marker_round
from tests.differential.packets import PORTS
from tests.differential.writes import Writes
from tests.support.bmv2_process import ANSWER_SECONDS, Bmv2Process

_MARKER_PORT = 60
_MARKER_SOURCE = 0x02DD  # the first half of a marker's source address
_MAX_CLI_BITS = 63  # what BMv2's Thrift interface can tell of a register's cell

Window = list[tuple[int, bytes]]
State = dict[str, list[list[int]]]


@dataclass(frozen=True)
class Outcome:
    """What a switch made of a program's frames.

    windows: what left for each window, as (port, frame), in order on each port
    state: counters and registers by name, cells in order; direct counters by table, entries in order of their match
    points: the same in front of each window before which the control plane writes
    digests: by name of the kind, the members of each digest, in order
    """

    windows: list[Window]
    state: State
    digests: dict[str, list[list[int]]]
    points: list[State] = field(default_factory=list[State])


def _by_port(frames: Iterable[tuple[int, bytes]]) -> Window:
    return sorted(frames, key=lambda item: item[0])


def run_gradlane(program: Program) -> Outcome:
    """gradlane-switch in this process; its clock stands still. Raises ProgramError when it refuses the program."""
    switch = Switch.load(program.json_path, program.p4info_path)
    switch.write(*program.initial.all_updates(program.schema))
    windows: list[Window] = []
    points: list[State] = []
    digests = _no_digests(program)
    rounds = 0
    for number, window in enumerate(program.windows):
        if number in program.changes:
            points.append(_gradlane_state(program, switch))
            for item in program.changes[number]:
                switch.write(*item.all_updates(program.schema))
        sent = [copy for port, frame in window for copy in switch.process(port, frame)]
        for _ in range(program.passes):
            rounds += 1
            for frame in program.markers(rounds):
                switch.process(_MARKER_PORT, frame)
        for response in switch.notifications():
            kind = program.schema.digests[response.digest.digest_id].alias
            digests[kind] += [member for member in _members(response.digest) if member[0] >> 32 != _MARKER_SOURCE]
            switch.acknowledge(_acknowledgement(response.digest).digest_ack)
        windows.append(_by_port(copy for copy in sent if marker_round(copy[1]) is None))
    return Outcome(windows, _gradlane_state(program, switch), digests, points)


def _gradlane_state(program: Program, switch: Switch) -> State:
    state = _counters(program, lambda *requests: [found for request in requests for found in switch.read(request)])
    for item in switch.pipeline.program.registers:
        if item.width <= _MAX_CLI_BITS:
            state[item.name] = [[switch.read_register(item.name, index)] for index in range(item.size)]
    return state


def run_bmv2(program: Program, command: str, folder: Path) -> Outcome:
    """BMv2 as a process of its own, with its files in `folder`."""
    process = Bmv2Process(program.schema, command, folder)
    try:
        return _Bmv2Run(program, process).run()
    finally:
        process.close()


class _Bmv2Run:
    def __init__(self, program: Program, process: Bmv2Process) -> None:
        self._program = program
        self._process = process
        self._rounds = 0
        self._digests = _no_digests(program)

    def run(self) -> Outcome:
        self._write(self._program.initial)
        windows: list[Window] = []
        points: list[State] = []
        for number, window in enumerate(self._program.windows):
            if number in self._program.changes:
                points.append(self._state())
                for item in self._program.changes[number]:
                    self._write(item)
            windows.append(self._window(window))
        return Outcome(windows, self._state(), self._digests, points)

    def _state(self) -> State:
        return {**_counters(self._program, self._process.read), **self._registers()}

    def _window(self, window: Window) -> Window:
        for port, frame in window:
            self._process.send(port, frame)
        sent: Window = []
        for _ in range(self._program.passes):
            self._rounds += 1
            for frame in self._program.markers(self._rounds):
                self._process.send(_MARKER_PORT, frame)
            waiting = set(PORTS)
            while waiting:
                port, frame = self._process.receive(f"marker {self._rounds} on ports {waiting}")
                number = marker_round(frame)
                if number is None:
                    sent.append((port, frame))
                elif number == self._rounds:
                    waiting.discard(port)
            if self._program.settings.get("digest"):
                self._take_digests()
        return _by_port(sent)

    def _take_digests(self) -> None:
        """The digests up to that of the last round of markers. The first member of a digest is the frame's source."""
        while True:
            message = self._process.session.receive("digest of a marker").digest
            self._process.session.send(_acknowledgement(message))
            for member in _members(message):
                if member[0] >> 32 != _MARKER_SOURCE:
                    self._digests[self._program.schema.digests[message.digest_id].alias].append(member)
                elif member[0] & 0xFFFFFFFF == self._rounds:
                    return

    def _write(self, item: Writes) -> None:
        """BMv2's P4Runtime knows neither value sets nor registers."""
        if item.updates:
            self._process.write(item.updates)
        lines = [f"register_write {name} {index} {value}" for name, index, value in item.registers]
        for name, members in item.value_sets.items():
            lines.append(f"pvs_clear {name}")
            widths = [each.bitwidth for each in self._program.schema.value_sets[name].match]
            for member in members:
                value = 0
                for part, width in zip(member, widths, strict=True):
                    value = value << width | part
                lines.append(f"pvs_add {name} {value:#x}")
        if lines:
            self._cli(lines)

    def _registers(self) -> dict[str, list[list[int]]]:
        """BMv2's P4Runtime does not know registers."""
        registers = [
            item for item in self._program.document["register_arrays"] if int(item["bitwidth"]) <= _MAX_CLI_BITS
        ]
        if not registers:
            return {}
        text = self._cli([f"register_read {item['name']}" for item in registers])
        found: dict[str, list[list[int]]] = {}
        for item in registers:
            (line,) = (line for line in text.splitlines() if f"{item['name']}= " in line)
            mask = (1 << int(item["bitwidth"])) - 1
            found[item["name"]] = [[int(cell) & mask] for cell in line.split("= ", 1)[1].split(", ")]
        return found

    def _cli(self, lines: list[str]) -> str:
        command = ["simple_switch_CLI", "--thrift-port", str(self._process.thrift_port)]
        answer = subprocess.run(
            command, input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
        if answer.returncode or "Error" in answer.stdout or "Invalid" in answer.stdout:
            raise AssertionError(f"simple_switch_CLI: {answer.stdout}{answer.stderr}")
        return answer.stdout


def _no_digests(program: Program) -> dict[str, list[list[int]]]:
    return {digest.preamble.alias: [] for digest in program.schema.p4info.digests}


def _members(digest: Any) -> list[list[int]]:
    """The digests in a list of them, each as its members' values."""
    return [[int.from_bytes(part.bitstring, "big") for part in data.struct.members] for data in digest.data]


def _acknowledgement(digest: Any) -> p4r.StreamMessageRequest:
    message = p4r.StreamMessageRequest()
    message.digest_ack.digest_id, message.digest_ack.list_id = digest.digest_id, digest.list_id
    return message


def _counters(program: Program, read: Callable[..., list[p4r.Entity]]) -> dict[str, list[list[int]]]:
    """Indirect and direct counters, of what their unit says."""
    info = program.schema.p4info
    found: dict[str, list[list[int]]] = {}
    for counter in info.counters:
        request = p4r.CounterEntry(counter_id=counter.preamble.id)
        requests = [p4r.Entity(counter_entry=request)]
        if (count := program.cells.get(counter.preamble.alias)) is not None:
            requests = [
                p4r.Entity(counter_entry=p4r.CounterEntry(counter_id=request.counter_id, index=p4r.Index(index=index)))
                for index in range(count)
            ]
        cells = sorted((item.counter_entry for item in read(*requests)), key=lambda item: item.index.index)
        found[counter.preamble.name] = [_counted(counter.spec.unit, item.data) for item in cells]
    for counter in info.direct_counters:
        request = p4r.Entity(direct_counter_entry=p4r.DirectCounterEntry())
        request.direct_counter_entry.table_entry.table_id = counter.direct_table_id
        entries = [item.direct_counter_entry for item in read(request)]
        entries.sort(key=lambda item: (item.table_entry.priority, [str(match) for match in item.table_entry.match]))
        found[counter.preamble.name] = [_counted(counter.spec.unit, item.data) for item in entries]
    return found


def _counted(unit: int, data: Any) -> list[int]:
    match unit:
        case p4i.CounterSpec.PACKETS:
            return [data.packet_count]
        case p4i.CounterSpec.BYTES:
            return [data.byte_count]
        case _:
            return [data.packet_count, data.byte_count]
