# SPDX-License-Identifier: Apache-2.0
"""The links of a leaf-spine, and wires between their ends that lose, delay and cut what is asked."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from gradlane_controller.network import fabric_file
from gradlane_controller.network.frames import parse_lldp
from gradlane_controller.network.links import Links

ALL = ("leaf1", "leaf2", "spine1", "spine2")
CUT = frozenset({("leaf2", 5), ("spine1", 2)})


class World:
    """Links, and the wires between their ends."""

    def __init__(self, text: str) -> None:
        self.fabric = fabric_file.parse(text, "f.toml")
        self.links = Links(self.fabric)
        self.peers = {(it.switch, it.number): (it.peer, it.peer_number) for it in self.fabric.link_ports}
        self.sent = Counter[bool]()  # by whether it is LLDP
        self.late: list[tuple[int, tuple[str, int], bytes]] = []  # in how many rounds a frame arrives, and where

    def rounds(
        self,
        count: int,
        deaf: Collection[tuple[str, int]] = (),
        present: Collection[str] = ALL,
        dead: Collection[str] = (),
        routeless: Collection[str] = (),
        punctual: Collection[str] | None = None,
        lose: Callable[[], bool] = lambda: False,
        delay: Callable[[], int] = lambda: 0,
    ) -> list[bool]:
        """What `judge` says; at the ends `deaf` nothing arrives, and switches that are `dead` neither send nor forward,
        those that are `routeless` forward no probe. Frames are lost, and come so many rounds late, as these say each
        time they cross a link."""
        said: list[bool] = []
        for _ in range(count):
            frames = self.links.begin()
            coming = [(rounds - 1, where, frame) for rounds, where, frame in self.late]
            for switch in present:
                crossed = self.cross(switch, frames.get(switch, ()), deaf, dead, routeless, lose)
                coming += [(delay(), where, frame) for where, frame in crossed]
            self.late = [it for it in coming if it[0] > 0]
            for rounds, where, frame in coming:
                if rounds <= 0 and where[0] in present:
                    self.arrive(where, frame)
            said.append(self.links.judge(present, present if punctual is None else punctual))
        return said

    def cross(
        self,
        switch: str,
        frames: Iterable[tuple[int, bytes]],
        deaf: Collection[tuple[str, int]] = (),
        dead: Collection[str] = (),
        routeless: Collection[str] = (),
        lose: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[tuple[str, int], bytes]]:
        """Where these frames of that switch arrive, each as (end, frame)."""
        for port, frame in frames:
            here, there, lldp = (switch, port), self.peers[switch, port], parse_lldp(frame) is not None
            self.sent[lldp] += 1
            if there in deaf or there[0] in dead or switch in dead or lose():
                continue
            if lldp:
                yield there, frame
            elif here not in deaf and there[0] not in routeless and not lose():
                yield here, frame

    def arrive(self, where: tuple[str, int], frame: bytes) -> None:
        if parse_lldp(frame) is None:
            self.links.hear_probe(*where, frame)
        else:
            self.links.hear(*where, frame)
