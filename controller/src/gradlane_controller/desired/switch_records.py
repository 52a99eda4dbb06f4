# SPDX-License-Identifier: Apache-2.0
"""What the fabric file does not say of switches, so that it survives a restart."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from gradlane_controller.desired.storage import StorageError

_FILE = "switches.json"


@dataclass(frozen=True)
class SwitchRecords:
    """`drained`: names of switches; `indices`: by name, what switches are numbered by on the wire."""

    drained: frozenset[str] = frozenset()
    indices: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, names: Collection[str]) -> "SwitchRecords":
        """Without the switches that are not there any more."""
        indices = {name: index for name, index in self.indices.items() if name in names}
        return SwitchRecords(self.drained & frozenset(names), indices)


def load(folder: Path) -> SwitchRecords:
    """What was kept in the folder last. Raises StorageError."""
    file = folder / _FILE
    try:
        found = cast(dict[str, Any], json.loads(file.read_text(encoding="utf-8")))
        return SwitchRecords(frozenset(found["drained"]), {str(name): int(it) for name, it in found["indices"].items()})
    except (FileNotFoundError, NotADirectoryError):
        return SwitchRecords()
    except OSError as problem:
        raise StorageError(f"{file}: can't be read: {problem.strerror}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StorageError(f"{file}: is damaged; remove it, and drain the switches again that were drained") from None


def keep(folder: Path, records: SwitchRecords) -> None:
    """In one step. Raises StorageError."""
    file, draft = folder / _FILE, folder / f"{_FILE}.draft"
    text = json.dumps({"drained": sorted(records.drained), "indices": dict(records.indices)}, indent=2)
    try:
        folder.mkdir(exist_ok=True)
        with draft.open("w", encoding="utf-8") as stream:
            stream.write(f"{text}\n")
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except OSError as problem:
        raise StorageError(f"{file}: can't be written: {problem.strerror}") from None
