# SPDX-License-Identifier: Apache-2.0
"""The scripts for Slurm, on a cluster of two nodes in network namespaces: slurmctld, slurmd and munged as Debian has
them. It needs root."""

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agents import PATIENCE, until
from tests.support.namespaces import Namespaces, ip
from tests.support.needs import needs_root
from tests.support.paths import DOCS, EXAMPLES, ROOT

pytestmark = [
    needs_root,
    pytest.mark.skipif(shutil.which("slurmd") is None, reason="slurmd is not there: `make test-slurm` installs it"),
]

SLURM = ROOT / "deploy/slurm"
HOSTS = "127.0.0.1 localhost\n10.88.0.1 ctl\n10.88.0.11 n1\n10.88.0.12 n2\n"
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=ctl(10.88.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmctldPidFile={folder}/ctl.pid
SlurmdPidFile={folder}/%n.pid
SlurmdSpoolDir={folder}/%n
StateSaveLocation={folder}/state
SelectType=select/cons_tres
SlurmctldLogFile={folder}/ctl.log
SlurmdLogFile={folder}/%n.log
NodeName=n1 NodeAddr=10.88.0.11
NodeName=n2 NodeAddr=10.88.0.12
PartitionName=all Nodes=n1,n2 Default=YES State=UP
"""
# What the page says of slurm.conf, and which script it installs by which name.
PAGE = (DOCS / "slurm.md").read_text()
SETTINGS = "".join(f"{line}\n" for line in re.findall(r"^    (\w+=.*)$", PAGE, re.MULTILINE))
SCRIPTS = re.findall(r"^    install -m 755 deploy/slurm/(\S+) /etc/slurm/(\S+)$", PAGE, re.MULTILINE)
TRAIN = """\
import os
import torch
import gradlane.torch

torch.distributed.init_process_group("gradlane")
values = torch.full((1000,), 1.0 + torch.distributed.get_rank())
torch.distributed.all_reduce(values)
print(f"{os.uname().nodename}: {values.sum().item()} by {os.environ['GRADLANE_SOCKET']}", flush=True)
torch.distributed.destroy_process_group()
"""


class Cluster(Namespaces):
    """slurmctld on `ctl`, slurmd on `n1` and `n2`, each with a network, a name and a /etc/hosts of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []
        super().__init__(*(f"gls{os.getpid()}-{name}" for name in ("ctl", "n1", "n2")))

    def _build(self) -> None:
        ctl, *nodes = self.names
        ip("-n", ctl, "link", "add", "br0", "type", "bridge")
        ip("-n", ctl, "addr", "add", "10.88.0.1/24", "dev", "br0")
        ip("-n", ctl, "link", "set", "br0", "up")
        for number, node in enumerate(nodes, 1):
            ip("link", "add", f"v{number}", "netns", ctl, "type", "veth", "peer", "name", "eth0", "netns", node)
            ip("-n", ctl, "link", "set", f"v{number}", "master", "br0", "up")
            ip("-n", node, "addr", "add", f"10.88.0.1{number}/24", "dev", "eth0")
            ip("-n", node, "link", "set", "eth0", "up")
        (self.folder / "hosts").write_text(HOSTS)
        (self.folder / "slurm.conf").write_text(
            CONFIGURATION.format(folder=self.folder) + SETTINGS.replace("/etc/slurm/", f"{self.folder}/")
        )
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for name, installed in SCRIPTS:
            text = (SLURM / name).read_text().replace("/opt/gradlane/bin", str(Path(sys.executable).parent))
            # Both nodes have this machine's files.
            script = self.folder / installed
            script.write_text(text.replace("/run/gradlane-slurm", f"{self.folder}/run/$SLURMD_NODENAME"))
            script.chmod(0o755)
        for name in ("state", "n1", "n2", "run/n1", "run/n2", "work"):
            (self.folder / name).mkdir(parents=True)
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        files = [f"--{what}-file={self.folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
        self._start(["munged", "--foreground", "--force", f"--socket={self.folder}/munge.sock", *files])
        until((self.folder / "munge.sock").is_socket)
        self._start(self.on("ctl", "slurmctld", "-D"))
        for node in ("n1", "n2"):
            self._start(self.on(node, "slurmd", "-D"))
        until(lambda: self.states() == ["idle", "idle"], self.logs)

    def on(self, name: str, *command: str) -> list[str]:
        """What runs a command on that machine of the cluster."""
        [namespace] = [it for it in self.names if it.endswith(f"-{name}")]
        private = f"mount --bind {self.folder}/hosts /etc/hosts && mount -t tmpfs none /sys/fs/cgroup"
        shell = f'hostname {name} && {private} && exec "$@"'
        return [*self.inside(namespace), "unshare", "--uts", "--mount", "sh", "-c", shell, "sh", *command]

    def _start(self, command: list[str]) -> None:
        with (self.folder / "said").open("ab") as said:
            self._started.append(subprocess.Popen(command, env=self._environment(), stdout=said, stderr=said))

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}:/usr/sbin:{os.environ['PATH']}"
        return os.environ | {"SLURM_CONF": f"{self.folder}/slurm.conf", "PATH": path}

    def tell(self, *command: str) -> str:
        """What a command says on `ctl`, in the folder `work`."""
        done = subprocess.run(
            self.on("ctl", *command),
            cwd=self.folder / "work",
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
            check=False,
        )
        return done.stdout + done.stderr

    def states(self) -> list[str]:
        """Of the nodes."""
        return self.tell("sinfo", "--noheader", "--Node", "--format=%T").split()

    def logs(self) -> str:
        """What all of them have written."""
        return "\n".join(file.read_text() for file in [self.folder / "said", *self.folder.glob("*.log")])

    def run_job(self) -> str:
        """What the batch script writes."""
        self.tell("sbatch", "--wait", "--output=out", "train.sbatch")
        return (self.folder / "work/out").read_text()

    def left(self) -> list[Path]:
        """What the scripts have left on the nodes."""
        return [it for node in ("n1", "n2") for it in (self.folder / "run" / node).iterdir()]

    def close(self) -> None:
        for name in self.names:  # slurmd may wait for its scripts, and what a job has started may still be there
            found = subprocess.run(["ip", "netns", "pids", name], check=False, capture_output=True, text=True)
            for pid in found.stdout.split():
                subprocess.run(["kill", "-9", pid], check=False, capture_output=True)
        for process in self._started:
            process.kill()
            process.wait()
        super().close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(f"/tmp/gls{os.getpid()}")  # sockets' paths are short
    folder.mkdir()
    try:
        with Cluster(folder) as started:
            for file in (SLURM / "train.sbatch", EXAMPLES / "template.toml"):
                shutil.copy(file, folder / "work")
            yield started
    finally:
        shutil.rmtree(folder)


def test_a_batch_script_trains_by_agents_that_come_and_go_with_it(cluster: Cluster) -> None:
    (cluster.folder / "work/train.py").write_text(TRAIN)
    out = cluster.run_job()
    for node in ("n1", "n2"):
        assert f"{node}: 3000.0 by {cluster.folder}/run/{node}/1/agent.sock" in out, out + cluster.logs()
    until(lambda: not cluster.left(), cluster.left)
    (cluster.folder / "work/train.py").write_text("import os; os.kill(os.getpid(), 9)")
    cluster.run_job()
    until(lambda: not cluster.left(), cluster.left)
    until(lambda: cluster.states() == ["idle", "idle"], cluster.logs)


def test_a_node_whose_agent_does_not_start_is_drained_and_its_log_says_why(cluster: Cluster) -> None:
    (cluster.folder / "work/train.py").write_text(TRAIN)
    hosts = cluster.folder / "hosts"
    hosts.write_text(HOSTS.replace("10.88.0.12 n2", "10.88.0.99 n2"))  # which is no address of it
    cluster.tell("sbatch", "--output=out", "train.sbatch")
    until(lambda: "drained" in " ".join(cluster.states()), cluster.logs)
    assert "10.88.0.99" in (cluster.folder / "n2.log").read_text()
