# SPDX-License-Identifier: Apache-2.0
"""The flows of bench/fairness.py and their processes: bulk TCP connections, and jobs of two hosts."""

from __future__ import annotations

import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dumbbell import Dumbbell
from netns import WireError, end

_WORKER = str(Path(__file__).with_name("fairness_worker.py"))
_START = 30.0  # seconds within which a flow begins


@dataclass(frozen=True)
class Flow:
    """`pair` of hosts that it is between; `tolerance`: the loss that a job tolerates, None for TCP."""

    pair: int
    tolerance: float | None = None

    @property
    def name(self) -> str:
        """As tables show it."""
        return "tcp" if self.tolerance is None else f"job, p = {self.tolerance:g}"


class Running:
    """The processes of flows side by side, until the stack ends. `tcp`: its congestion control. Raises WireError."""

    def __init__(self, network: Dumbbell, tcp: str, folder: Path, stack: ExitStack) -> None:
        self._network, self._tcp, self._folder, self._stack = network, tcp, folder, stack
        self._agents: dict[int, Path] = {}
        self._processes: list[tuple[subprocess.Popen[str], Path]] = []

    def _start(self, host: int, *words: str) -> Path:
        path = self._folder / f"{len(self._processes)}"
        output, log = (self._stack.enter_context(path.with_suffix(kind).open("w")) for kind in (".out", ".log"))
        process = self._network.start(host, _WORKER, *words, stdout=output, stderr=log)
        self._stack.callback(end, process)
        self._processes.append((process, path))
        return path.with_suffix(".out")

    def flow(self, number: int, flow: Flow) -> Path:
        """Starts both ends; what the receiving one writes."""
        near, far = 2 * flow.pair, 2 * flow.pair + 1
        if flow.tolerance is None:
            address = self._network.address(far)
            arrivals = self._start(far, "tcp_receive", address)
            self.wait_for(arrivals)
            self._start(near, "tcp_send", address, self._tcp)
            return arrivals
        path = self._folder / f"job{number}.toml"
        rate, buffer = f"{self._network.rate}bit", f"{self._network.buffer}B"
        document = self._network.job(rate, buffer, number + 1, (near, far))
        path.write_text(f"{document}[loss]\npush = {flow.tolerance}\npull = {flow.tolerance}\n")
        for host in (near, far):
            if host not in self._agents:
                agent, self._agents[host] = self._network.start_agent(host, self._folder)
                self._stack.callback(end, agent)
        self._start(near, "job", "0", str(path), str(self._agents[near]))
        return self._start(far, "job", "1", str(path), str(self._agents[far]))

    def wait_for(self, output: Path) -> None:
        """Until a process has begun."""
        deadline = time.monotonic() + _START
        while not output.read_text().endswith("\n"):
            self.check()
            if time.monotonic() > deadline:
                raise WireError(f"{output.stem} has not begun within {_START:g} s")
            time.sleep(0.02)

    def check(self) -> None:
        """That all go on."""
        if any(process.poll() is not None for process, _ in self._processes):
            said = [path.with_suffix(".log").read_text().strip()[-500:] for _, path in self._processes]
            raise WireError(f"an end of a flow ended: {'; '.join(filter(None, said)) or 'it said nothing'}")
