# SPDX-License-Identifier: Apache-2.0
"""The run file and the table of arms, which the experiment runner and every process of a run share."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from gradlane import job
from lab.model.arms import ARMS
from lab.training import config
from lab.training.config import Config, ConfigError, Node

NODES = tuple(Node(r, f"h{r + 1}", f"10.0.{r + 1}.2", f"h{r + 1}-eth0", f"/run/h{r}", 150 * r) for r in range(3))


def make(arm: str = "ps-tcp") -> Config:
    return Config(arm, 7, "cnn", 256, 16, 60, NODES[:2], NODES[2:], job="job.toml")


def write(path: Path, changes: dict[str, Any]) -> Path:
    make().save(path)
    document = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))
    return path


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    make().save(tmp_path / "run.json")
    loaded = config.load(tmp_path / "run.json")
    assert loaded.workers == NODES[:2]
    assert loaded.servers == NODES[2:]
    assert (loaded.arm, loaded.seed, loaded.model, loaded.steps, loaded.job) == ("ps-tcp", 7, "cnn", 60, "job.toml")


def test_each_saved_run_has_a_rendezvous_of_its_own(tmp_path: Path) -> None:
    make().save(tmp_path / "run.json")
    first = config.load(tmp_path / "run.json").rendezvous
    make().save(tmp_path / "run.json")
    assert config.load(tmp_path / "run.json").rendezvous != first


@pytest.mark.parametrize(
    ("changes", "key", "reason"),
    [
        ({"arm": "ddp-nccl"}, "arm", "'ddp-gloo'"),
        ({"steps": 0}, "steps", "from 1 to"),
        ({"servers": []}, "servers", "needs at least one server"),
        ({"workers": []}, "workers", "at least one worker"),
        ({"model": None}, "model", "is missing"),
        ({"colour": "red"}, "colour", "is not known here"),
        ({"chunk_bytes": 1026}, "chunk_bytes", "multiple of 4"),
        ({"workers": [{"rank": 1, "host": "h1", "address": "10.0.1.2", "interface": "e"}]}, "workers[0].rank", "be 0"),
        ({"arm": "gradlane", "job": None}, "job", "is missing"),
        (
            {"workers": [{"rank": 0, "host": "h", "address": "a", "interface": "e", "computation_ms": -1}]},
            "workers[0].computation_ms",
            "from 0 to",
        ),
    ],
)
def test_a_wrong_run_file_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], key: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.load(write(tmp_path / "run.json", changes))
    assert caught.value.key == key
    assert reason in caught.value.reason
    assert "run.json" in str(caught.value)


def test_a_file_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("arm = 'ps-tcp'")
    with pytest.raises(ConfigError, match="not valid JSON"):
        config.load(tmp_path / "run.json")


def test_a_run_replaces_what_an_arm_has_tuned(tmp_path: Path) -> None:
    loaded = config.load(write(tmp_path / "run.json", {"bucket_bytes": 65536, "congestion_control": "reno"}))
    assert loaded.effective_arm.bucket_bytes == 65536
    assert loaded.effective_arm.congestion_control == "reno"
    assert make().effective_arm == ARMS["ps-tcp"]


def test_ranks_of_the_wrong_role_are_refused() -> None:
    with pytest.raises(ValueError, match="workers' ranks are 0 to 1"):
        make().worker(2)
    with pytest.raises(ValueError, match="servers' ranks are 2"):
        make().server(1)


@pytest.mark.parametrize("name", [arm.name for arm in ARMS.values() if arm.kind == "gradlane"])
def test_what_an_arm_changes_in_the_job_file_is_valid_there(name: str) -> None:
    document: dict[str, Any] = {
        "job": {"name": name, "id": 1, "key": "0123456789abcdef" * 2},
        "worker": [{"rank": n.rank, "host": n.host, "address": n.address} for n in NODES[:2]],
        "transport": {"rate": "100mbit", "wire": ARMS[name].wire, "multicast": "239.1.0.1"},
        "loss": {"push": 0.03},
        "policy": {"drop_precedences": [{"magnitudes": [0, 63], "drop_precedence": 1}]},
    }
    unchanged = job.parse(tomli_w.dumps(document), "job.toml")
    for section, values in ARMS[name].job.items():
        document[section] = document.get(section, {}) | values
    changed = job.parse(tomli_w.dumps(document), "job.toml")
    assert (changed == unchanged) == (not ARMS[name].job)


def test_arms_and_config_need_no_pytorch() -> None:
    program = "import sys, lab.model.arms, lab.training.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
