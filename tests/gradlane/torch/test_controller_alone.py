# SPDX-License-Identifier: Apache-2.0
"""Two hosts around a gradlane-switch train with GRADLANE_CONTROLLER alone, over a management network beside that of the
gradients. It needs root."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gradlane.sums.test_summed_on_a_switch import process, wait_for
from tests.gradlane.torch.ranks import job_file
from tests.gradlane_controller.controller_process import PATIENCE
from tests.support.agents import Agent, running, until
from tests.support.effort import only_thorough
from tests.support.namespaces import Network, ip
from tests.support.needs import needs, needs_root

pytestmark = [pytest.mark.long, needs_root, needs("ethtool")]

HOSTS = 2
GRACE = 3.0
TRAINING = """
import torch, torch.distributed as dist, gradlane.torch
dist.init_process_group("gradlane")
total = torch.full((1 << 16,), 2.0 ** dist.get_rank())
dist.all_reduce(total)
print(sorted(set(total.tolist())))
dist.destroy_process_group()
"""
# Answers with whether the controller did as asked, and what it said: one process, as most time would be starts of many.
ASKER = """
import json, sys
from gradlane.controller_client import JOB_TYPE, JSON_TYPE, Client, RequestError
client = Client("127.0.0.1:9560", sys.argv[1])
for line in sys.stdin:
    method, path, body = json.loads(line)
    try:
        answer = True, client.ask(method, path, body or None, JSON_TYPE if body[:1] == "{" else JOB_TYPE).content
    except RequestError as problem:
        answer = False, str(problem)
    print(json.dumps(answer), flush=True)
"""
# Of a host, for each line with an environment a training process, as a fork of one that has imported PyTorch.
TRAINER = """
import json, os, sys
from tests.gradlane.torch.worker_training import print_bits
for line in iter(sys.stdin.readline, ""):
    if not (pid := os.fork()):
        os.environ |= json.loads(line)
        print_bits()
        sys.stdout.flush()
        os._exit(0)
    if os.waitpid(pid, 0)[1]:
        sys.exit("it failed")
"""


class Site:
    """The network, with a controller and the agents of both hosts."""

    def __init__(self, folder: Path, network: Network, stack: contextlib.ExitStack) -> None:
        self.folder, self.network = folder, network
        inside = network.inside(network.switch)
        for k in range(1, HOSTS + 1):
            host = network.host(k)
            ip("link", "add", f"m{k}", "netns", network.switch, "type", "veth", "peer", "name", "mgmt", "netns", host)
            ip("-n", network.switch, "addr", "add", f"172.31.{k}.1/24", "dev", f"m{k}")
            ip("-n", network.switch, "link", "set", f"m{k}", "up")
            ip("-n", host, "addr", "add", f"172.31.{k}.2/24", "dev", "mgmt")
            ip("-n", host, "link", "set", "mgmt", "up")
        text = '[[switch]]\nname = "s1"\ndevice_id = 1\naddress = "127.0.0.1:9559"\n'
        for k in range(1, HOSTS + 1):
            text += (
                f'[[port]]\nnumber = {k}\nhost = "h{k - 1}"\nmac = "02:00:00:00:00:ff"\n'
                f'host_mac = "02:00:00:00:00:0{k}"\naddress = "10.0.{k}.2"\nprefix = "10.0.{k}.0/24"\n'
                f'gateway = "10.0.{k}.1"\nrate = "1gbit"\nbuffer = "256kB"\n'
            )
        (folder / "fabric.toml").write_text(text)
        (folder / "exact.toml").write_text("[loss]\npush = 0.0\n")
        argv = [*inside, sys.executable, "-m", "gradlane_switch", "--device-id", 1]
        argv += ["--grpc-server-addr", "127.0.0.1:9559"]
        argv += [word for k in range(1, HOSTS + 1) for word in ("-i", f"{k}@s{k},rate=1gbit,buffer=256kB")]
        switch = stack.enter_context(process(folder / "switch.log", *argv))
        cli = [sys.executable, "-m", "gradlane_controller.cli"]
        argv = [*inside, *cli, "run", "--http", "0.0.0.0:9560", "--insecure", "--fabric", folder / "fabric.toml"]
        argv += ["--template", folder / "exact.toml", "--job-grace", GRACE]
        controller = stack.enter_context(process(folder / "controller.log", *argv))
        wait_for(folder / "controller.log", "ready: ", [switch, controller])
        self.token = (folder / "fabric.db.token").read_text().strip()
        argv = [*inside, sys.executable, "-c", ASKER, self.token]
        self._asker = stack.enter_context(
            subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        self.agents = stack.enter_context(running(*(self._agent(k) for k in range(1, HOSTS + 1))))
        self._trainers = [stack.enter_context(self._trainer(k)) for k in range(1, HOSTS + 1)]

    def _agent(self, k: int) -> Agent:
        wanted = {"name": "agent", "scope": "agents", "host": f"h{k - 1}"}
        token = self.folder / f"h{k}.token"
        token.write_text(self.ask("POST", "/v1/tokens", wanted)["token"])
        config = self.folder / f"h{k}.toml"
        config.write_text(f'[controller]\nurl = "172.31.{k}.1:9560"\ntoken_file = "{token}"\n')
        inside = self.network.inside(self.network.host(k))
        return Agent(f"10.0.{k}.2", self.folder / f"{k}.sock", "--config", config, prefix=inside)

    def ask(self, method: str, path: str, content: Any = None) -> Any:
        """What the controller answers, from its own namespace. Raises AssertionError if it refuses."""
        body = "" if content is None else content if isinstance(content, str) else json.dumps(content)
        assert self._asker.stdin is not None
        assert self._asker.stdout is not None
        self._asker.stdin.write(json.dumps([method, path, body]) + "\n")
        self._asker.stdin.flush()
        answered, answer = json.loads(self._asker.stdout.readline())
        assert answered, answer
        return answer

    def train(self, **environment: str) -> list[str]:
        """The bits of each rank's model, in a process on each host."""
        rendezvous = self.folder / f"rendezvous{time.monotonic_ns()}"
        for k, trainer in enumerate(self._trainers, 1):
            own = {key: text.format(k=k) for key, text in environment.items()}
            own |= {"RANK": str(k - 1), "WORLD_SIZE": str(HOSTS), "RENDEZVOUS": str(rendezvous)}
            own |= {"GRADLANE_SOCKET": str(self.folder / f"{k}.sock")}
            assert trainer.stdin is not None
            trainer.stdin.write(json.dumps(own) + "\n")
            trainer.stdin.flush()
        found = [trainer.stdout.readline() for trainer in self._trainers if trainer.stdout is not None]
        assert all(found), "a training process failed, and said why"
        return found

    def _trainer(self, k: int) -> "subprocess.Popen[str]":
        argv = [*self.network.inside(self.network.host(k)), sys.executable, "-c", TRAINER]
        own = {"OMP_NUM_THREADS": "1"}
        return subprocess.Popen(argv, env=os.environ | own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Network(HOSTS, "c") as network, contextlib.ExitStack() as stack:
        yield Site(tmp_path_factory.mktemp("site"), network, stack)


def by_controller(site: Site) -> dict[str, str]:
    return {
        "GRADLANE_CONTROLLER": "172.31.{k}.1:9560",
        "GRADLANE_TOKEN": site.token,
        "GRADLANE_JOB_NAME": "alone",
    }


def test_the_result_is_that_of_a_job_file_bit_for_bit(site: Site, tmp_path: Path) -> None:
    file = job_file(tmp_path / "job.toml", site.agents)
    site.ask("POST", "/v1/jobs", file.read_text())
    expected = site.train(GRADLANE_JOB=str(file))
    site.ask("DELETE", "/v1/jobs/torch")
    assert site.train(**by_controller(site)) == expected
    assert expected[0] != expected[1]  # each rank's running means are its own
    until(lambda: not site.ask("GET", "/v1/jobs")["items"], lambda: site.ask("GET", "/v1/jobs"))
    hosts = [(it["host"], it["addresses"]) for it in site.ask("GET", "/v1/agents")["items"]]
    assert hosts == [("h0", ["10.0.1.2"]), ("h1", ["10.0.2.2"])]


@only_thorough("torchrun sets the variables that the other test sets, and is tested on one host")
def test_torchrun_on_several_hosts_needs_no_job_file(site: Site, tmp_path: Path) -> None:
    processes = 2  # on each host
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    nodes: list[subprocess.Popen[str]] = []
    for k in range(1, HOSTS + 1):
        own = {key: text.format(k=k) for key, text in by_controller(site).items()} | {
            "GRADLANE_JOB_NAME": "by-torchrun"
        }
        own |= {"GRADLANE_SOCKET": str(site.folder / f"{k}.sock"), "OMP_NUM_THREADS": "1"}
        argv = [*site.network.inside(site.network.host(k)), sys.executable, "-m", "torch.distributed.run"]
        argv += ["--nnodes", str(HOSTS), "--nproc-per-node", str(processes), "--rdzv-backend", "c10d"]
        argv += ["--rdzv-endpoint", "10.0.1.2:29400", "--local-addr", f"10.0.{k}.2"]
        argv += ["--rdzv-conf", f"is_host={k == 1}", str(script)]  # it can't tell by the hostname, which all share here
        nodes.append(subprocess.Popen(argv, env=os.environ | own, stdout=subprocess.PIPE, text=True))
    printed = [it.communicate(timeout=4 * PATIENCE)[0] for it in nodes]
    assert [it.returncode for it in nodes] == [0] * HOSTS
    total = 2.0 ** (HOSTS * processes) - 1
    assert [text.replace("\n", "") for text in printed] == [f"[{total}]" * processes] * HOSTS
    until(lambda: not site.ask("GET", "/v1/jobs")["items"], lambda: site.ask("GET", "/v1/jobs"))


def test_a_job_whose_hosts_vanish_is_removed_after_the_grace_time(site: Site) -> None:
    wanted = {"name": "lost", "workers": HOSTS}
    asked = [{**wanted, "rank": k - 1, "address": f"10.0.{k}.2"} for k in range(1, HOSTS + 1)]
    with contextlib.suppress(AssertionError):
        site.ask("POST", "/v1/trainings", asked[0])  # it waits for some seconds, and is told to ask again
    assert site.ask("POST", "/v1/trainings", asked[1])["job"] == "lost"
    assert [it["name"] for it in site.ask("GET", "/v1/jobs")["items"]] == ["lost"]
    until(lambda: not site.ask("GET", "/v1/jobs")["items"], lambda: site.ask("GET", "/v1/jobs"))
