# SPDX-License-Identifier: Apache-2.0
"""p4c's output: where it is, and what it offers. There are two programs: one sums gradients, too."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from finsy import (
    P4DigestEntry,
    P4IndirectAction,
    P4MeterEntry,
    P4MulticastGroupEntry,
    P4Schema,
    P4TableAction,
    P4TableEntry,
)
from google.protobuf.text_format import ParseError

from gradlane_controller.errors import PipelineError
from gradlane_controller.network.fabric import SwitchAddress
from gradlane_controller.policy import Entity

DEFAULT_FOLDER = Path(__file__).parents[1] / "p4"
PLAIN, AGGREGATION = "gradlane", "gradlane-aggregation"


@dataclass(frozen=True)
class Pipeline:
    """The program of the switch. `schema` is its P4Info with the program as the blob that a switch loads."""

    p4info: Path
    program: Path
    schema: P4Schema

    @property
    def cookie(self) -> int:
        """SHA-256 of P4Info and program, cut to 64 bits: the P4Runtime cookie that tells whether a switch has it."""
        return self.schema.p4cookie


class Programs:
    """The programs of a folder. Each is read when a switch first needs it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, Pipeline] = {}

    def of(self, where: SwitchAddress) -> Pipeline:
        """The one of that switch. Raises PipelineError."""
        name = AGGREGATION if where.aggregation else PLAIN
        if name not in self._read:
            self._read[name] = load(self._folder, name)
        return self._read[name]


def load(folder: Path, name: str = PLAIN) -> Pipeline:
    """Reads the P4Info and the program of that name from a folder. Raises PipelineError."""
    p4info, program = folder / f"{name}.p4info.txtpb", folder / f"{name}.json"
    for path in (p4info, program):
        if not path.is_file():
            raise PipelineError(
                f"{folder}: no {path.name} there; compile p4src with p4c-bm2-ss, or name the right folder with --p4-dir"
            )
    try:
        schema = P4Schema(p4info, program.read_bytes())
    except (OSError, ValueError, ParseError) as problem:
        raise PipelineError(f"{folder}: can't be read: {problem}") from None
    return Pipeline(p4info, program, schema)


def check_capacity(pipeline: Pipeline, switch: str, entities: Iterable[Entity]) -> None:
    """Checks that every table of a switch has room for its entries, and their actions. Raises PipelineError that names
    the table."""
    entities = list(entities)
    tables = [entity for entity in entities if isinstance(entity, P4TableEntry)]
    _check_actions(pipeline, switch, tables)
    counts = Counter(entity.table_id for entity in tables)
    for entity in tables:
        if isinstance(entity.action, P4IndirectAction):
            profile = pipeline.schema.tables[entity.table_id].action_profile
            if profile is not None:
                counts[profile.alias] += sum(_weight(member) for member, _ in entity.action.action_set or ())
    sizes = {table.alias: table.size for table in pipeline.schema.tables}
    sizes |= {profile.alias: profile.size for profile in pipeline.schema.action_profiles}
    for name, count in counts.items():
        if count > sizes[name]:
            raise PipelineError(
                f"table {name} of switch {switch!r} holds {sizes[name]} entries and {count} are needed; use fewer "
                "ports, ranks or rules"
            )


def _check_actions(pipeline: Pipeline, switch: str, tables: Iterable[P4TableEntry]) -> None:
    """A program for Tofino lacks one: that of sums in jobs of more workers than bits."""
    needed = {(it.table_id, it.action.name) for it in tables if isinstance(it.action, P4TableAction)}
    for table, action in sorted(needed):
        if action not in {ref.alias for ref in pipeline.schema.tables[table].actions}:
            right = "at most 32 workers in a job that switches sum, or " if action == "stand_for" else ""
            raise PipelineError(
                f"table {table} of switch {switch!r} has no action {action} in {pipeline.p4info}; it takes {right}the "
                "program of this version"
            )


def _weight(weight: int | tuple[int, int]) -> int:
    return weight if isinstance(weight, int) else weight[0]


def count_entries(entities: Iterable[Entity]) -> dict[str, int]:
    """Number of entities by table, "multicast_groups", meter and digest."""
    counts: Counter[str] = Counter()
    for entity in entities:
        match entity:
            case P4TableEntry():
                counts[entity.table_id] += 1
            case P4MulticastGroupEntry():
                counts["multicast_groups"] += 1
            case P4MeterEntry():
                counts[entity.meter_id] += 1
            case P4DigestEntry():
                counts[entity.digest_id] += 1
    return dict(sorted(counts.items()))
