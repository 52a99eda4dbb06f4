# SPDX-License-Identifier: Apache-2.0
"""deploy/kubernetes: its objects are valid, and what its pods run works, as processes with what they are lent."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.commands import PARSERS
from tests.deploy.manifests import BIN, KUBERNETES, PROGRAMS, Pod, build, documents, template, validate
from tests.gradlane.control.certificates import Authority
from tests.support.agents import NETWORK, until
from tests.support.namespaces import Namespaces, ip
from tests.support.needs import needs, needs_root
from tests.support.paths import ROOT
from tests.support.ports import free_ports

BASE, EXAMPLES = KUBERNETES / "base", KUBERNETES / "examples"
FILES = sorted(it for it in BASE.rglob("*.yaml") if it.name != "kustomization.yaml")
NICE = 1 << 23  # CAP_SYS_NICE
TRAIN = """\
import torch
import gradlane.torch

torch.distributed.init_process_group("gradlane")
values = torch.full((1000,), 1.0 + torch.distributed.get_rank())
torch.distributed.all_reduce(values)
print("sum", values.sum().item(), flush=True)
torch.distributed.destroy_process_group()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may enter, with a short path for sockets."""
    made = Path(f"/tmp/glk{os.getpid()}")
    made.mkdir()
    yield made
    shutil.rmtree(made)


@needs("kubectl")
@pytest.mark.parametrize("name", [".", "site"])
def test_kustomize_builds_objects_that_are_valid_and_belong_together(name: str, tmp_path: Path) -> None:
    objects = build(name)
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(objects))
    assert validate(tmp_path / "all.yaml") == ""
    named = {(it["kind"], it["metadata"]["name"]) for it in objects}
    images: set[str] = set()
    for it in objects:
        pods = it["spec"]["template"]["spec"] if "template" in it.get("spec", {}) else {}
        for volume in pods.get("volumes", []):
            assert "configMap" not in volume or ("ConfigMap", volume["configMap"]["name"]) in named
        for container in pods.get("containers", []):
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            claimed = {claim["metadata"]["name"] for claim in it["spec"].get("volumeClaimTemplates", [])}
            assert mounted == {volume["name"] for volume in pods["volumes"]} | claimed
            images.add(container["image"].rpartition("/")[2])
            arguments = [re.sub(r"\$\(\w+\)", "192.0.2.1", word) for word in container["args"]]
            PARSERS[PROGRAMS[it["metadata"]["name"]]]().parse_args(
                arguments
            )  # ends the program if it does not take them
    version = (ROOT / "VERSION").read_text().strip()
    assert images == {f"gradlane-{part}:{version}" for part in ("agent", "controller", "switch")}


@pytest.mark.parametrize("file", [*FILES, EXAMPLES / "secret.yaml", EXAMPLES / "job.yaml"], ids=lambda it: it.stem)
def test_each_object_is_valid(file: Path) -> None:
    assert validate(file) == ""


@pytest.mark.parametrize("name", ["pytorchjob", "trainjob"])
def test_pods_of_kubeflows_jobs_are_valid_and_as_those_of_a_plain_job(name: str, tmp_path: Path) -> None:
    plain = template(EXAMPLES / "job.yaml", "Job")["spec"]
    found = documents(EXAMPLES / f"{name}.yaml")[0]["spec"]
    if name == "trainjob":
        [job] = found["template"]["spec"]["replicatedJobs"]
        pods = [job["template"]["spec"]["template"]]
    else:
        pods = [it["template"] for it in found["pytorchReplicaSpecs"].values()]
    for pod in pods:
        whole = {"apiVersion": "v1", "kind": "Pod", **pod}
        (tmp_path / "pod.yaml").write_text(yaml.safe_dump(whole))
        assert validate(tmp_path / "pod.yaml") == ""
        for key in ("volumes", "securityContext", "nodeSelector", "affinity"):
            assert pod["spec"][key] == plain[key]
        [one], [other] = pod["spec"]["containers"], plain["containers"]
        assert one["volumeMounts"] == other["volumeMounts"]
        assert all(it in other["env"] for it in one["env"])


def test_what_is_not_valid_is_told(tmp_path: Path) -> None:
    text = (BASE / "agent/daemonset.yaml").read_text()
    (tmp_path / "it.yaml").write_text(text.replace("hostPID: true", "hostPid: true"))
    assert "hostPid" in validate(tmp_path / "it.yaml")


def agent(folder: Path, address: str, prefix: tuple[str, ...] = (), *more: Any) -> Pod:
    """A pod of the DaemonSet on a node of that address."""
    folder.mkdir()
    spec = template(BASE / "agent/daemonset.yaml", "DaemonSet")["spec"]
    for patch in more:
        [ours], [theirs] = spec["containers"], patch["containers"]
        ours["env"] += theirs["env"]
        ours["volumeMounts"] += theirs["volumeMounts"]
    pod = Pod(spec, folder, {"status.hostIP": address, "spec.nodeName": "h1"}, prefix)
    pod.path("/run/gradlane").chmod(0o755)
    return pod


def capabilities(pod: Pod) -> int:
    assert pod.process is not None
    [line] = [it for it in Path(f"/proc/{pod.process.pid}/status").read_text().splitlines() if it[:7] == "CapEff:"]
    return int(line.split()[1], 16)


@needs_root
def test_a_job_trains_by_agents_that_have_priority_and_no_other_capability(folder: Path) -> None:
    addresses = [f"{NETWORK}.{number}" for number in (81, 82)]
    agents = [agent(folder / f"a{number}", address) for number, address in enumerate(addresses)]
    [secret] = documents(EXAMPLES / "secret.yaml")
    spec = template(EXAMPLES / "job.yaml", "Job")["spec"]
    [port] = free_ports(1)
    settings = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    for variable in spec["containers"][0]["env"]:
        if variable["name"] in settings:
            variable["value"] = settings[variable["name"]]
    ranks: list[Pod] = []
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    started: list[Pod] = []
    try:
        for each in agents:
            each.put("/etc/gradlane", {"agent.toml": (BASE / "agent/agent.toml").read_text()})
            assert not each.probe("startupProbe")
            each.start()
            started.append(each)
        for each in agents:
            until(lambda each=each: each.probe("startupProbe"), each.said)
            assert capabilities(each) == NICE
            assert "not permitted" not in each.said()
            assert "no real-time priority" not in each.said()
        for number, each in enumerate(agents):
            (folder / f"r{number}").mkdir()
            rank = Pod(spec, folder / f"r{number}", {index: str(number)})
            rank.put("/etc/gradlane-job", secret["stringData"])
            rank.path("/run/gradlane").rmdir()
            rank.path("/run/gradlane").symlink_to(each.path("/run/gradlane"))  # both pods mount the host's folder
            (rank.folder / "train.py").write_text(TRAIN)
            ranks.append(rank)
            rank.start()
            started.append(rank)
        for rank in ranks:
            assert rank.process is not None
            assert rank.process.wait(120) == 0, rank.said()
            assert "sum 3000.0" in rank.said()
    finally:
        codes = [each.end() for each in reversed(started)]
    assert codes == [0] * 4
    assert not agents[0].probe("livenessProbe")


class Node(Namespaces):
    """A node with the addresses and interfaces of the fabric file."""

    def _build(self) -> None:
        [name] = self.names
        for address in ("192.0.2.11", "10.0.1.2"):
            ip("-n", name, "addr", "add", f"{address}/32", "dev", "lo")
        for number in (1, 2):
            ip("-n", name, "link", "add", f"eth{number}", "type", "veth", "peer", "name", f"p{number}")
            for end in (f"eth{number}", f"p{number}"):
                ip("-n", name, "link", "set", end, "up")

    def named(self, name: str, folder: Path) -> tuple[str, ...]:
        """What runs a command here on a machine of that name, which resolves to it."""
        (folder / "hosts").write_text(f"127.0.0.1 localhost {name}\n")
        shell = f'hostname {name} && mount --bind {folder}/hosts /etc/hosts && exec "$@"'
        return (*self.inside(self.names[0]), "unshare", "--uts", "--mount", "sh", "-c", shell, "sh")


def files(part: str) -> dict[str, str]:
    """What a ConfigMap of the base has."""
    [generator] = documents(BASE / part / "kustomization.yaml")[0]["configMapGenerator"]
    return {name: (BASE / part / name).read_text() for name in generator["files"]}


@needs_root
def test_a_controller_fills_a_switch_and_an_agent_reports_to_it(folder: Path) -> None:
    name = "controller-0.controller.gradlane.svc.cluster.local"
    assert f"https://{name}:9560" in (KUBERNETES / "reports/agent.toml").read_text()
    authority = Authority(folder, "ca")
    authority.issue("switch", address="192.0.2.11")
    authority.issue("controller", host=name)
    secret = {
        part: {f"tls.{end}": (folder / f"{part}.{end}").read_text() for end in ("crt", "key")}
        | {"ca.crt": authority.ca.read_text()}
        for part in ("switch", "controller")
    }
    patch = template(KUBERNETES / "reports/agent.yaml", "DaemonSet")["spec"]
    started: list[Pod] = []
    with Node(f"glk{os.getpid()}") as node:
        here, there = node.inside(node.names[0]), node.named(name, folder)
        for part in ("s", "c"):
            (folder / part).mkdir()
        fields = {"status.hostIP": "192.0.2.11", "spec.nodeName": "s1"}
        switch = Pod(template(BASE / "switch/daemonset.yaml", "DaemonSet")["spec"], folder / "s", fields, here)
        switch.put("/etc/gradlane-switch", files("switch"))
        switch.put("/etc/gradlane-switch-tls", secret["switch"])
        spec = template(BASE / "controller/statefulset.yaml", "StatefulSet")["spec"]
        assert spec["setHostnameAsFQDN"]
        controller = Pod(spec, folder / "c", {"metadata.name": "controller-0"}, there)
        controller.put("/etc/gradlane-controller", files("controller"))
        controller.put("/etc/gradlane-controller-tls", secret["controller"])
        url = f"https://{name}:9560"
        curl = ["curl", "-sk", "--max-time", "10", "-o", folder / "answer", "-w", "%{http_code}"]

        def asked(path: str, *more: str) -> str:
            said = subprocess.run([*there, *curl, *more, url + path], capture_output=True, text=True, check=False)
            return said.stdout

        try:
            for each in (switch, controller):
                each.start()
                started.append(each)
            until(lambda: switch.probe("startupProbe"), switch.said)
            health = controller.container["livenessProbe"]["httpGet"]
            until(lambda: asked(health["path"]) == "200", controller.said)
            until(lambda: asked("/readyz") == "200", lambda: controller.said() + switch.said())
            access = ["--http", f"{name}:9560", "--ca", authority.ca]
            access += ["--token-file", controller.path("/var/lib/gradlane-controller/token")]
            create = [BIN / "gradlane-controller", "token", "create", "h1", "--scope", "agents", "--host", "h1"]
            made = subprocess.run([*there, *create, *access], capture_output=True, text=True, check=False)
            assert not made.returncode, made.stderr
            pod = agent(folder / "a", "10.0.1.2", there, patch)
            pod.path("/etc/gradlane-token").rmdir()
            pod.path("/etc/gradlane-token").write_text(made.stdout)
            pod.put("/etc/gradlane-ca", {"ca.crt": authority.ca.read_text()})
            pod.put("/etc/gradlane", {"agent.toml": (KUBERNETES / "reports/agent.toml").read_text()})
            pod.start()
            started.append(pod)
            bearer = controller.path("/var/lib/gradlane-controller/token").read_text().strip()

            def reporting() -> bool:
                return asked("/v1/agents", "-H", f"Authorization: Bearer {bearer}") == "200" and (
                    '"h1"' in (folder / "answer").read_text()
                )

            until(reporting, lambda: pod.said() + (folder / "answer").read_text())
        finally:
            codes = [each.end() for each in reversed(started)]
    assert codes == [0, 0, 0]
