# SPDX-License-Identifier: Apache-2.0
"""The files that a reader of the guides has: of a fabric and its jobs, certificates, and a training."""

from pathlib import Path

from scapy.layers.l2 import Ether
from scapy.utils import wrpcap

from tests.gradlane.control.certificates import Authority
from tests.gradlane_controller.texts import job_text, leafspine_text
from tests.support.paths import PIPELINE

TRAINING = """\
import torch
import gradlane.torch

torch.distributed.init_process_group("gradlane")
torch.distributed.all_reduce(torch.ones(1000))
torch.distributed.destroy_process_group()
"""
TEMPLATE = """\
[job]
name = "template"
id = 9
key = "c3b0e2a97f1d4e6b8a5904d7f2163c8e"
[transport]
rate = "1gbit"
"""
FIFTH_HOST = """\
[[port]]
switch = "leaf2"
number = 3
host = "h5"
mac = "02:00:00:00:05:01"
host_mac = "02:00:00:00:05:02"
address = "10.0.5.2"
rate = "100mbit"
buffer = "64kB"
"""
# What has happened before a page's first command.
BEFORE = {
    "docs/agent.md": """\
gradlane agent --address 10.0.1.2
gradlane-switch --cpu-port 255
gradlane-controller run --fabric fabric.toml
export GRADLANE_TOKEN=$(cat fabric.db.token)
""",
    "docs/controller.md": "switches\n",
    "docs/kubernetes.md": """\
cp -r deploy/kubernetes/site deploy/kubernetes/mine
cp fabric.toml s?.toml deploy/kubernetes/mine
""",
    "docs/operations.md": """\
mkdir /var/lib/gradlane-controller
gradlane-switch --cpu-port 255
gradlane-controller run --fabric fabric.toml --store sqlite:////var/lib/gradlane-controller/controller.db
kill "${running[gradlane-controller]}" && wait "${running[gradlane-controller]}"
""",
    "docs/performance.md": "gradlane agent --address 10.0.1.2\n",
}


def write(folder: Path) -> None:
    """All of them, as they are named in the pages."""
    addresses = ["127.0.0.1:9559", *(f"127.0.0.1:{9600 + number}" for number in (2, 3, 4))]
    files = {
        "fabric.toml": leafspine_text(addresses=addresses) + FIFTH_HOST,
        "job.toml": job_text("resnet", 1, (1, 2, 3, 4), servers=(5,)),
        "other.toml": job_text("other", 2, (1, 3), base=4096),
        "template.toml": TEMPLATE,
        "plain.toml": "[transport]\n",
        "lossy.toml": "[loss]\npush = 0.03\n",
        "train.py": TRAINING,
        "s1.toml": "device_id = 1\n",
        "s2.toml": "device_id = 2\n",
        "p.p4": "",
        "h2.token": "",
        "e.txtpb": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    authority = Authority(folder, "ca")
    for name, address in (("controller", "192.0.2.1"), ("me", "10.0.1.2"), ("switch", "192.0.2.11")):
        authority.issue(name, address=address)
    (folder / "controllers.pem").write_bytes(authority.ca.read_bytes())
    (folder / "s1.pem").write_bytes((folder / "switch.crt").read_bytes())
    (folder / "s1.key").write_bytes((folder / "switch.key").read_bytes())
    for name, file in (("p.json", "gradlane.json"), ("p.txtpb", "gradlane.p4info.txtpb")):
        for each in (name, file):
            (folder / each).write_bytes((PIPELINE / file).read_bytes())
    wrpcap(str(folder / "in.pcap"), Ether(dst="02:00:00:00:ff:02") / bytes(100))
