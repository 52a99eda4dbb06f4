# SPDX-License-Identifier: Apache-2.0
"""Network cards as the kernel shows them in /sys and /proc: NUMA node and interrupts, and the cores of the agent."""

from dataclasses import dataclass
from pathlib import Path

MOST_BELOW = 64  # interfaces below one, as of a bond
_TRANSPORT = "gradlane-io"  # the agent's thread that sends and receives: core/io/runner.c


@dataclass(frozen=True)
class Card:
    """What is behind an interface. `node`: the NUMA node it is at; -1: not known. `interrupts`: those that have come,
    and the cores that they go to. `missed`: packets that came while its rings were full, since the host's start."""

    name: str
    node: int
    interrupts: dict[int, frozenset[int]]
    missed: int


def cores_of(text: str) -> frozenset[int]:
    """Of a list as the kernel writes it, e.g. "0-3,8"."""
    runs = [run.partition("-") for run in text.strip().split(",") if run]
    return frozenset(core for low, _, high in runs for core in range(int(low), int(high or low) + 1))


def text_of(cores: frozenset[int]) -> str:
    """The list that the kernel would write."""
    runs: list[list[int]] = []
    for core in sorted(cores):
        if runs and runs[-1][-1] == core - 1:
            runs[-1][1:] = [core]
        else:
            runs.append([core])
    return ",".join("-".join(map(str, run)) for run in runs)


class System:
    """The trees of files, `root` of which is / where no test has its own."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._sys, self._proc = root / "sys", root / "proc"

    @property
    def cores(self) -> frozenset[int]:
        """Those that run."""
        return cores_of(_read(self._sys / "devices/system/cpu/online"))

    @property
    def nodes(self) -> dict[int, frozenset[int]]:
        """The cores that run of each NUMA node that has some."""
        folders = (self._sys / "devices/system/node").glob("node[0-9]*")
        found = {int(folder.name[4:]): cores_of(_read(folder / "cpulist")) for folder in folders}
        return {node: cores for node, cores in found.items() if cores}

    def agent_cores(self, pid: int) -> frozenset[int]:
        """Those that the transport of the agent with that pid may run on; none if it can't be seen from here."""
        for task in (self._proc / f"{pid}/task").glob("[0-9]*"):
            if _read(task / "comm").strip() == _TRANSPORT:
                for line in _read(task / "status").splitlines():
                    if line.startswith("Cpus_allowed_list:"):
                        return cores_of(line.partition(":")[2])
        return frozenset()

    def cards(self, interface: str) -> list[Card]:
        """Those that an interface goes by: itself, or those of a bond; none if nothing is behind it but software."""
        found: list[Card] = []
        names = [interface]
        for name in names:  # which grows
            folder = self._sys / "class/net" / name
            below = sorted(lower.name[len("lower_") :] for lower in folder.glob("lower_*"))
            names += [other for other in below if other not in names][: MOST_BELOW - len(names)]
            if (folder / "device").exists() and not below:
                found.append(self._card(name, folder))
        return found

    def _card(self, name: str, folder: Path) -> Card:
        device = (folder / "device").resolve()
        # A virtio device is a child of the one that the bus knows.
        numbers = next((at / "msi_irqs" for at in (device, device.parent) if (at / "msi_irqs").is_dir()), None)
        node = next((text for at in (device, device.parent) if (text := _read(at / "numa_node"))), "-1")
        irqs = [] if numbers is None else sorted(int(file.name) for file in numbers.iterdir())
        came = self._came()
        missed = _read(folder / "statistics/rx_missed_errors") or "0"
        return Card(
            name,
            int(node),
            {irq: self._destination(irq) for irq in irqs if came.get(irq)},
            int(missed),
        )

    def _came(self) -> dict[int, int]:
        """How often each interrupt has come, on all cores."""
        heads, *lines = _read(self._proc / "interrupts").splitlines() or [""]
        found: dict[int, int] = {}
        for line in lines:
            number, _, rest = line.partition(":")
            if number.strip().isdigit():
                found[int(number)] = sum(map(int, rest.split()[: len(heads.split())]))
        return found

    def _destination(self, irq: int) -> frozenset[int]:
        folder = self._proc / f"irq/{irq}"
        # The one core of those allowed that the kernel has chosen, where it says so.
        chosen = _read(folder / "effective_affinity_list").strip()
        return cores_of(chosen or _read(folder / "smp_affinity_list"))


def _read(file: Path) -> str:
    """What a file has; nothing where there is none, or where it is not for this user."""
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
