# SPDX-License-Identifier: Apache-2.0
"""A forwarding pipeline: a program, compiled and loaded, its P4Info, and its state."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from gradlane_switch.bmv2_json.program import load
from gradlane_switch.codegen.program import generate
from gradlane_switch.native.ffi import LoadedProgram
from gradlane_switch.p4info.join import join, with_match_kinds
from gradlane_switch.p4info.references import join_references
from gradlane_switch.p4info.schema import Schema
from gradlane_switch.state.names import NameState
from gradlane_switch.state.program_state import Lock, State
from gradlane_switch.state.references import ReferenceState


class Pipeline:
    """What SetForwardingPipelineConfig makes of a config. Raises ProgramError or BuildError."""

    def __init__(self, device_config: bytes, info: Any, lock: Lock, cookie: int | None = None) -> None:
        self.device_config = device_config
        self.info = info
        self.cookie = cookie
        self.program = with_match_kinds(load(device_config), info)
        self.schema: Schema = join(info, self.program)
        self._references = join_references(info, self.schema.tables)
        self.loaded = LoadedProgram(generate(self.program))
        self.begin(lock)

    def begin(self, lock: Lock) -> None:
        """Starts anew, with the state that the program has at first."""
        self.state = State(self.program, lock)
        self.names = NameState(self.schema)
        self.references = ReferenceState(self._references, self.names)
        with self.references.deferred():
            for schema in self.schema.tables.values():
                table = self.state.tables[schema.index]
                if not schema.constant:
                    table.free_entries()
                for entry in (table.default, *table.entries.values()):
                    with self.references.entry(schema.id, None, entry):
                        pass  # It is there already.

    @cached_property
    def traced(self) -> LoadedProgram:
        """The same program, compiled to record what it does. Raises BuildError."""
        return LoadedProgram(generate(self.program, traced=True))

    @classmethod
    def verify(cls, device_config: bytes, info: Any) -> None:
        """Everything that making a pipeline checks, without its state. Raises ProgramError or BuildError."""
        program = with_match_kinds(load(device_config), info)
        join_references(info, join(info, program).tables)
        LoadedProgram(generate(program))
