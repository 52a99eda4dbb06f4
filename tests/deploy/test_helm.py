# SPDX-License-Identifier: Apache-2.0
"""The chart of deploy/kubernetes: its objects are Kustomize's, its values do what they say, wrong ones are told."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.manifests import KUBERNETES, build, validate
from tests.support.needs import needs
from tests.support.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

pytestmark = needs("helm", "kubectl")
SITE = ["image.registry=registry.example.com", "agent.reports=true", "controller.postgresql.enabled=true"]
KEYS = ("mountPath", "name")  # by which Kubernetes knows the items of a list


def helm(*words: str | Path, values: Sequence[str] = (), chart: Path = KUBERNETES, namespace: str = "gradlane") -> Any:
    """What `helm template` has ended with: its exit code and what it wrote."""
    settings = [word for value in values for word in ("--set", value)]
    command = ["helm", "template", "gradlane", chart, "--namespace", namespace, *settings, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rendered(*words: str | Path, **options: Any) -> dict[Any, Any]:
    """The objects by kind and name."""
    done = helm(*words, **options)
    assert not done.returncode, done.stderr
    return {(it["kind"], it["metadata"]["name"]): it for it in yaml.safe_load_all(done.stdout) if it}


def pods(it: Any) -> Any:
    return it["spec"]["template"]["spec"]


def container(it: Any) -> Any:
    return pods(it)["containers"][0]


def ordered(it: Any) -> Any:
    """An object whose lists have one order, where Kubernetes knows their items by a key."""
    if isinstance(it, dict):
        return {key: ordered(value) for key, value in it.items()}
    if isinstance(it, list):
        items = [ordered(value) for value in it]
        key = next((key for key in KEYS if items and all(isinstance(x, dict) and key in x for x in items)), None)
        return sorted(items, key=lambda x: x[key]) if key else items
    return it


def kustomized(name: str) -> dict[Any, Any]:
    """The objects of a kustomization, whose ConfigMaps have the names of their generators."""
    objects = build(name)
    named = {it["metadata"]["name"] for it in objects if it["kind"] == "ConfigMap"}
    text = json.dumps(objects)
    for full in named:
        text = text.replace(f'"{full}"', f'"{full.rpartition("-")[0]}"')
    return {(it["kind"], it["metadata"]["name"]): it for it in json.loads(text) if it["kind"] != "Namespace"}


@pytest.mark.parametrize(("values", "name"), [([], "."), (SITE, "site")], ids=["defaults", "site"])
def test_the_objects_are_those_of_kustomize(values: list[str], name: str) -> None:
    ours, theirs = rendered(values=values), kustomized(name)
    for key, it in ours.items():
        if key[0] in ("DaemonSet", "StatefulSet"):
            checksum = it["spec"]["template"]["metadata"]["annotations"].pop("checksum/config")
            assert len(checksum) == 64
    for objects in (ours, theirs):
        for key, it in objects.items():
            if key[0] == "ConfigMap":
                it["data"] = {file: tomllib.loads(text) for file, text in it["data"].items()}
    assert ordered(ours) == ordered(theirs)


@pytest.mark.parametrize("values", [[], SITE], ids=["defaults", "site"])
def test_the_objects_are_valid(values: list[str], tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(yaml.safe_dump_all(rendered(values=values).values()))
    assert validate(tmp_path / "all.yaml") == ""


def test_versions_are_those_of_the_release() -> None:
    chart = yaml.safe_load((KUBERNETES / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == (ROOT / "VERSION").read_text().strip()


def test_files_come_from_values_and_replace_the_pods_of_controllers(tmp_path: Path) -> None:
    for name in ("fabric", "s1", "s2", "agent", "controller", "plain"):
        (tmp_path / name).write_text(f'# {name}\nit = "{name}"\n')
    given = {"controller.fabric": "fabric", "controller.config": "controller", "controller.plain": "plain"}
    given |= {"switch.nodes.s1": "s1", "switch.nodes.s2": "s2", "agent.config": "agent"}
    words = [word for key, name in given.items() for word in ("--set-file", f"{key}={tmp_path / name}")]
    objects, base = rendered(*words), rendered()

    def files(name: str) -> dict[str, str]:
        return {file: text.split()[1] for file, text in objects["ConfigMap", name]["data"].items()}

    assert files("agent") == {"agent.toml": "agent"}
    assert files("switch") == {"s1.toml": "s1", "s2.toml": "s2"}
    assert files("controller") == {f"{it}.toml": it for it in ("fabric", "controller", "plain")}
    key = ("StatefulSet", "controller")
    assert objects[key]["spec"]["template"]["metadata"] != base[key]["spec"]["template"]["metadata"]


def test_each_value_does_what_it_says() -> None:
    values = ["image.tag=1.2", "image.pullPolicy=Always", "image.pullSecrets={one,two}"]
    for part in ("agent", "controller", "switch"):
        values += [f"{part}.nodeSelector.zone=a", f"{part}.tolerations[0].operator=Exists"]
        values += [f"{part}.resources.limits.memory=1Gi"]
    values += ["controller.agentNetworks={10.1.0.0/16,fd00::/8}", "controller.storage.size=2Gi"]
    values += ["controller.storage.class=fast", "controller.clusterDomain=example.org", "agent.reports=true"]
    values += ["controller.postgresql.enabled=true", "controller.postgresql.replicas=5"]
    values += ["controller.postgresql.store=postgresql+psycopg://other/one"]
    objects, base = rendered(values=values, namespace="train"), rendered()
    assert {it["metadata"]["namespace"] for it in objects.values()} == {"train"}
    workloads = [key for key in objects if key[0] in ("DaemonSet", "StatefulSet")]
    assert len(workloads) == 3
    for key in workloads:
        it, before = objects[key], pods(base[key])
        assert container(it)["image"] == f"gradlane-{key[1]}:1.2"
        assert container(it)["imagePullPolicy"] == "Always"
        assert pods(it)["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
        assert pods(it)["nodeSelector"] == before.get("nodeSelector", {}) | {"zone": "a"}
        assert pods(it)["tolerations"] == [*before.get("tolerations", []), {"operator": "Exists"}]
        assert container(it)["resources"] == {"limits": {"memory": "1Gi"}}
    controller = objects["StatefulSet", "controller"]
    assert controller["spec"]["replicas"] == 5
    assert container(controller)["args"][-1] == "--store=postgresql+psycopg://other/one"
    [claim] = controller["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["storageClassName"] == "fast"
    assert claim["spec"]["resources"]["requests"] == {"storage": "2Gi"}
    [rule] = objects["NetworkPolicy", "controller"]["spec"]["ingress"]
    assert [it["ipBlock"]["cidr"] for it in rule["from"][1:]] == ["10.1.0.0/16", "fd00::/8"]
    reports = tomllib.loads(objects["ConfigMap", "agent"]["data"]["agent.toml"])["controller"]
    names = [f"controller-{number}.controller.train.svc.example.org" for number in range(5)]
    assert reports["url"] == [f"https://{name}:9560" for name in names]


@pytest.mark.parametrize("part", ["agent", "controller", "switch"])
def test_a_part_can_be_left_out(part: str) -> None:
    objects = rendered(values=[f"{part}.enabled=false"])
    assert not [key for key in objects if key[1] == part]
    assert {name for _, name in objects} == {"agent", "controller", "switch"} - {part}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("agent.config2=x", "at '/agent': additional properties 'config2' not allowed"),
        ("agents.enabled=true", "additional properties 'agents' not allowed"),
        ("agent.reports=perhaps", "at '/agent/reports': got string, want boolean"),
        ("agent=null", "missing property 'agent'"),
        ("image.registry=https://example.com", "at '/image/registry': 'https://example.com' does not match pattern"),
        ("image.tag=a b", "at '/image/tag': 'a b' does not match pattern"),
        ("image.pullPolicy=Sometimes", "at '/image/pullPolicy': value must be one of '', 'Always'"),
        ("controller.postgresql.replicas=0", "at '/controller/postgresql/replicas': minimum: got 0, want 1"),
        ("controller.postgresql.store=sqlite:///x", "at '/controller/postgresql/store'"),
        ("controller.agentNetworks={10.0.0.0}", "at '/controller/agentNetworks/0': '10.0.0.0' does not match pattern"),
        ("controller.storage.size=big", "at '/controller/storage/size': 'big' does not match pattern"),
        ("switch.nodes.S_1=x", "'S_1' does not match pattern"),
        ("switch.tolerations[0].effect=Never", "at '/switch/tolerations/0/effect'"),
        ("switch.resources.request.cpu=1", "at '/switch/resources': additional properties 'request' not allowed"),
    ],
)  # fmt: skip
def test_wrong_values_are_told(value: str, said: str) -> None:
    done = helm(values=[value])
    assert done.returncode
    assert said in done.stderr


def test_every_value_has_a_rule() -> None:
    default = yaml.safe_load((KUBERNETES / "values.yaml").read_text())
    rules = json.loads((KUBERNETES / "values.schema.json").read_text())

    def compare(values: Any, rule: Any) -> None:
        if "properties" in rule:
            assert set(values) == set(rule["properties"]) - {"global"}
            for key, value in values.items():
                compare(value, rule["properties"][key])

    compare(default, rules)


def test_the_chart_can_be_packed_without_what_is_kustomizes_alone(tmp_path: Path) -> None:
    subprocess.run(["helm", "lint", "--strict", KUBERNETES], check=True, capture_output=True)
    subprocess.run(["helm", "package", KUBERNETES, "-d", tmp_path], check=True, capture_output=True)
    [package] = tmp_path.iterdir()
    assert rendered(chart=package) == rendered()
