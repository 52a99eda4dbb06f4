# SPDX-License-Identifier: Apache-2.0
"""What the timeline is told of switches, links and jobs."""

from collections.abc import Mapping

from gradlane_controller.journal import Record
from gradlane_controller.network.links import Links
from gradlane_controller.session.convergence import Changes
from gradlane_controller.session.managed_switch import ManagedSwitch


class Timeline:
    """Each method is told once that it is so."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._up: dict[str, bool] = {}  # links, as they were told of last

    def job(self, name: str, number: int, *, put: bool) -> None:
        """It was put or deleted; `number` is its id."""
        self._record("job", name, f"job {name!r} was {'put' if put else 'deleted'}", id=number, put=put)

    def ready(self, managed: ManagedSwitch) -> None:
        """The switch holds what it should."""
        self._record("switch", managed.where.name, f"{managed.connection.name} is ready", state="ready")

    def lost(self, managed: ManagedSwitch, *, closed: bool) -> None:
        """Its session has ended."""
        self._record("switch", managed.where.name, managed.problem, state="closed" if closed else "lost")

    def mended(self, managed: ManagedSwitch, changes: Changes) -> None:
        """What another client had changed was put right; told no oftener than the log."""
        where = managed.connection.name
        if managed.mended.add(where, changes):
            text = f"another client changed what {where} holds; put right: {changes}"
            self._record("drift", managed.where.name, text, entities=changes.total)

    def links(self, links: Links) -> None:
        """Some have failed, or work again."""
        for link in links.to_json({}):
            name, up = " - ".join(link["ends"]), link["up"]
            if self._up.get(name, True) != up:
                self._record("link", name, f"link {name} {'works' if up else 'is down'}", up=up, deaf=link["deaf"])
            self._up[name] = up

    def trees(self) -> None:
        """They were laid anew."""
        self._record("trees", "", "trees are laid anew, by what other traffic takes of links")

    def tuning(self, job: str, before: Mapping[str, int], after: Mapping[str, int], reason: str) -> None:
        """A job is treated in another way than before, for that reason."""
        self._record("tuning", job, reason, before=dict(before), after=dict(after))

    def violation(self, where: str, what: str) -> None:
        """Gradients were refused that were not before."""
        self._record("violation", where, what)
