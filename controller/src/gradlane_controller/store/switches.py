# SPDX-License-Identifier: Apache-2.0
"""What a store keeps of switches: that the fabric file does not say."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gradlane_controller.store import lease
from gradlane_controller.store.models import SwitchRow


@dataclass(frozen=True)
class SwitchRecords:
    """`drained`: names of switches; `indices`: by name, what switches are numbered by on the wire."""

    drained: frozenset[str] = frozenset()
    indices: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, names: Collection[str]) -> "SwitchRecords":
        """Without the switches that are not there any more."""
        indices = {name: index for name, index in self.indices.items() if name in names}
        return SwitchRecords(self.drained & frozenset(names), indices)


def records(session: Session) -> SwitchRecords:
    """Those that were kept last."""
    rows = session.scalars(select(SwitchRow)).all()
    indices = {row.name: row.number for row in rows if row.number is not None}
    return SwitchRecords(frozenset(row.name for row in rows if row.drained), indices)


def keep(session: Session, number: int, new: SwitchRecords) -> None:
    """Replaces them, as the leader of that number. Raises StoreError if another controller leads."""
    lease.advance(session, number)
    session.execute(delete(SwitchRow))
    for name in sorted({*new.drained, *new.indices}):
        session.add(SwitchRow(name=name, drained=name in new.drained, number=new.indices.get(name)))
