# SPDX-License-Identifier: Apache-2.0
"""Two workers behind a loopback that drops, until it is told not to; a run that goes on, and one that is restored.

The last line of the output is a JSON object: what the test looks at.
"""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gradlane.torch
from tests.gradlane.torch.ranks import job_file
from tests.support.agents import Agent, agents, loopback

# Less than the first burst of two workers, so that the queue overflows.
BOTTLENECK = ("root", "tbf", "rate", "80mbit", "burst", "20kb", "limit", "20kb")


class Worker:
    """One rank in this process: its model, with a state from before if there is one."""

    def __init__(self, rank: int, job: Path, agents: list[Agent], state: dict[str, Any] | None) -> None:
        self.rank = rank
        torch.manual_seed(5)
        self.model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64))
        self.session = gradlane.torch.connect(job, rank, agents[rank].socket, self.model)
        inner = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        # It must hold what the network owed before the buckets are there, and after.
        if state is not None:
            self.session.load_state_dict(state["session"])
        self.optimizer = gradlane.torch.overlap(self.model, inner, self.session, bucket_bytes=150_000)
        if state is not None:
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])

    def train(self, first: int, last: int) -> None:
        for step in range(first, last):
            inputs = torch.randn(16, 64, generator=torch.Generator().manual_seed(100 * self.rank + step))
            self.optimizer.zero_grad()
            (self.model(inputs) - inputs.flip(1)).square().mean().backward()
            self.optimizer.step()
        self.optimizer.synchronize()

    def state(self) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "session": self.session.state_dict(),
        }

    def parameters(self) -> torch.Tensor:
        return nn.utils.parameters_to_vector(self.model.parameters()).detach()


def main(folder: Path) -> dict[str, Any]:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with agents(folder, loopback(2)) as hosts:
        return compare(folder, hosts)


def compare(folder: Path, hosts: list[Agent]) -> dict[str, Any]:
    job = job_file(folder / "job.toml", hosts, push="0.3", wire="float32")
    with ThreadPoolExecutor(2) as pool:

        def run(first: int, last: int, states: Any = (None, None), lossy: bool = False) -> tuple[list[Worker], Any]:
            """The workers after these steps, and how many slices were lost for good."""
            workers = list(pool.map(lambda rank: Worker(rank, job, hosts, states[rank]), range(2)))
            if lossy:
                subprocess.run(["tc", "qdisc", "add", "dev", "lo", *BOTTLENECK], check=True)
            list(pool.map(lambda worker: worker.train(first, last), workers))
            if lossy:
                subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)
            return workers, sum(worker.session.statistics()["slices_lost"] for worker in workers)

        def end(workers: list[Worker]) -> torch.Tensor:
            list(pool.map(lambda worker: worker.session.close(), workers))
            return torch.stack([worker.parameters() for worker in workers])

        workers, lost = run(0, 4, lossy=True)
        file = folder / "state.pt"
        torch.save([worker.state() for worker in workers], file)
        list(pool.map(lambda worker: worker.train(4, 7), workers))
        lost_afterwards = sum(worker.session.statistics()["slices_lost"] for worker in workers) - lost
        uninterrupted = end(workers)
        states = torch.load(file)
        workers, lost_restored = run(4, 7, states)
        restored = end(workers)
        owed = [sum(value.abs().sum().item() for value in s["session"]["residuals"].values()) for s in states]
        for state in states:
            state["session"]["residuals"] = {}
        workers, _ = run(4, 7, states)
        without = end(workers)
    return {
        "lost": lost,
        "owed": owed,
        "lost afterwards": [lost_afterwards, lost_restored],
        "equal": torch.equal(uninterrupted, restored),
        "equal without what was owed": torch.equal(uninterrupted, without),
    }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
