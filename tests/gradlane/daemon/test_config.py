# SPDX-License-Identifier: Apache-2.0
"""The agent's configuration file: what it takes, and how it says no."""

import grp
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest

from gradlane.daemon import config
from gradlane.daemon.config import AgentConfig, ConfigError, Endpoint, Log
from tests.support.agents import NETWORK, AgentProcess, command, until
from tests.support.needs import needs, needs_root
from tests.support.paths import DOCS

EVERYTHING = """
address = ["10.0.1.2", "fd00:1::2"]
socket = "/run/other/agent.sock"
group = "{group}"
mode = "0600"
[scheduling]
nice = 0
realtime = false
threads = 2
runners = 3
[log]
level = "debug"
format = "json"
file = "{folder}/agent.log"
[metrics]
listen = "[::1]:9561"
[limits]
memory = "512MiB"
shared = "3GiB"
jobs = 4
"""


def test_every_key_arrives(tmp_path: Path) -> None:
    group = grp.getgrall()[-1].gr_name
    found = config.parse(EVERYTHING.format(group=group, folder=tmp_path), "agent.toml")
    assert found == AgentConfig(
        addresses=(ip_address("10.0.1.2"), ip_address("fd00:1::2")),
        socket=Path("/run/other/agent.sock"),
        group=group,
        mode=0o600,
        nice=0,
        realtime=False,
        threads=2,
        runners=3,
        log=Log("debug", "json", tmp_path / "agent.log"),
        metrics=Endpoint("::1", 9561),
        memory=512 << 20,
        shared=3 << 30,
        jobs=4,
    )


@pytest.mark.parametrize(("cores", "threads"), [(3, 1), (4, 2)])
def test_a_second_thread_where_cores_are_not_few(cores: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert AgentConfig((ip_address("10.0.1.2"),)).threads == threads
    assert config.parse('address = "10.0.1.2"', "agent.toml").threads == threads


@pytest.mark.parametrize(("cores", "runners", "threads"), [(3, 1, 1), (4, 2, 1), (6, 3, 1), (16, 4, 2), (64, 4, 2)])
def test_runners_by_the_cores(cores: int, runners: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    found = config.parse('address = "10.0.1.2"\n[scheduling]\nrunners = "auto"', "agent.toml")
    assert (found.runners, found.threads) == (runners, threads)
    assert config.parse('address = "10.0.1.2"', "agent.toml").runners == 1


def test_the_address_alone_is_enough() -> None:
    assert config.parse('address = "10.0.1.2"', "agent.toml") == AgentConfig((ip_address("10.0.1.2"),))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            'addres = "10.0.1.2"',
            "agent.toml:1: addres: is not known here; did you mean 'address'? known: address, controller, group,",
        ),
        ('address = "10.0.1"', "agent.toml:1: address: '10.0.1' must be this host's IPv4 or IPv6 address"),
        ('address = "239.1.1.1"', "address: '239.1.1.1' must be this host's"),
        ('address = ["10.0.1.2", "10.0.1.2"]', "address: lists 10.0.1.2 twice"),
        ("address = []", "address: is []; it must be a string or a list of strings"),
        ("address = [1]", "address: is [1]; it must be a string or a list of strings"),
        ('socket = "agent.sock"', "socket: is 'agent.sock'; it must be an absolute path"),
        ('group = "no-such-group"', "group: is 'no-such-group', which this host does not have; make it: groupadd"),
        ('mode = "0777"', "mode: is '0777'; it must be a socket's permissions in octal, from '0600' to '0666'"),
        ('mode = "rw"', "mode: is 'rw'; it must be a socket's permissions"),
        ("[scheduling]\nnice = 20", "agent.toml:2: scheduling.nice: is 20; it must be an integer from -20 to 19"),
        ("[scheduling]\nthreads = 3", "scheduling.threads: is 3; it must be an integer from 1 to 2"),
        ("[scheduling]\nrunners = 9", "scheduling.runners: is 9; it must be 'auto' or an integer from 1 to 8"),
        ('[scheduling]\nrealtime = "yes"', "scheduling.realtime: is 'yes'; it must be true or false"),
        ('[log]\nlevel = "loud"', "log.level: is 'loud'; it must be one of 'debug', 'info', 'warning', 'error'"),
        ('[log]\nfile = "/no/such/folder/x.log"', "there is no folder /no/such/folder"),
        ('[metrics]\nlisten = "9561"', "metrics.listen: '9561' must be HOST:PORT"),
        ('[metrics]\nlisten = "::1:9561"', "metrics.listen: '::1:9561' must be HOST:PORT"),
        ("[limits]\njobs = 0", "limits.jobs: is 0; it must be an integer from 1 to 256"),
        ('[limits]\nmemory = "2 loads"', "limits.memory: '2 loads' is not a size"),
        ('[tls]\nca = "/x"', "tls.certificate: is missing"),
        ("[tls", "agent.toml:1: not valid TOML"),
    ],
)
def test_a_mistake_is_named_with_what_would_be_right(text: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config.parse(text, "agent.toml")
    assert error in str(raised.value)


def _certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    subject = ["-subj", f"/CN={name}", "-days", "2", "-nodes"]
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *subject]
    subprocess.run([*argv, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def test_the_usual_file_need_not_be_there_but_one_that_cannot_be_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "DEFAULT_FILE", tmp_path / "none.toml")
    assert config.load_default() is None
    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "DEFAULT_FILE", tmp_path / "file" / "agent.toml")
    with pytest.raises(ConfigError, match="can't be read: Not a directory"):
        config.load_default()


@needs("openssl")
def test_the_guides_certificates_are_taken(tmp_path: Path) -> None:
    guide = (DOCS / "agent.md").read_text()
    commands = [line for line in guide.splitlines() if line.startswith("    openssl ")]
    assert len(commands) == 3
    subprocess.run(["sh", "-e"], input="\n".join(commands), text=True, cwd=tmp_path, capture_output=True, check=True)
    names = {"ca": "ca.pem", "certificate": "host.pem", "key": "host.key"}
    text = "[tls]\n" + "".join(f'{key} = "{tmp_path / name}"\n' for key, name in names.items())
    assert config.parse(text, "agent.toml").tls is not None
    seen = subprocess.run(
        ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", tmp_path / "host.pem"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "IP Address:10.0.1.2" in seen.stdout
    checked = subprocess.run(["openssl", "verify", "-CAfile", tmp_path / "ca.pem", tmp_path / "host.pem"], check=False)
    assert checked.returncode == 0


def test_certificates_are_tried_when_the_file_is_read(tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path, "a")
    _, other = _certificate(tmp_path, "b")
    text = '[tls]\nca = "{0}"\ncertificate = "{1}"\nkey = "{2}"\n'
    assert config.parse(text.format(certificate, certificate, key), "f").tls == config.Tls(
        certificate, certificate, key
    )
    with pytest.raises(ConfigError, match=r"f:3: tls.certificate: .* key values mismatch; both must be in PEM"):
        config.parse(text.format(certificate, certificate, other), "f")
    with pytest.raises(ConfigError, match=r"f:2: tls.ca: .* can't be used: .*; it must be certificates in PEM"):
        config.parse(text.format(key, certificate, key), "f")
    with pytest.raises(ConfigError, match=r"f:2: tls.ca: .*No such file or directory"):
        config.parse(text.format(tmp_path / "none", certificate, key), "f")


def test_what_takes_a_restart() -> None:
    old = AgentConfig((ip_address("10.0.1.2"),))
    assert config.restart_needed(old, replace(old, jobs=1, memory=1, log=Log("debug"))) == []
    assert config.restart_needed(old, replace(old, nice=1, socket=Path("/x"))) == ["socket", "nice"]


def test_check_says_good_or_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('address = "10.0.1.2"\n')
    good = command("config", "check", file)
    assert (good.returncode, good.stderr) == (0, "")
    assert f"{file}: good; address 10.0.1.2" in good.stdout
    file.write_text("nice = 3\n")
    bad = command("config", "check", file)
    assert bad.returncode == 2
    assert bad.stderr.startswith(f"gradlane: error: {file}:1: nice: is not known here; known: ")
    assert command("config", "check", tmp_path / "none").returncode == 2


def test_flags_go_before_the_file_and_an_address_must_be_somewhere(tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text(f'address = "10.255.0.1"\nsocket = "{tmp_path}/file.sock"\n[log]\nformat = "json"\n')
    agent = AgentProcess("--config", file, "--address", f"{NETWORK}.1", "--log-format", "text")
    try:
        assert f"ready: address {NETWORK}.1, socket {tmp_path}/file.sock" in agent.wait_for("ready")
    finally:
        assert agent.end() == 0
    file.write_text("")
    missing = command("agent", "--config", file)
    assert missing.returncode == 2
    assert f"{file}: address: is missing" in missing.stderr


def test_hangup_takes_over_what_it_can_names_the_rest_and_keeps_what_was_good(tmp_path: Path) -> None:
    file, log = tmp_path / "agent.toml", tmp_path / "new.log"
    start = f'address = "{NETWORK}.1"\nsocket = "{tmp_path}/a.sock"\n'
    file.write_text(start)
    agent = AgentProcess("--config", file)
    try:
        agent.wait_for("ready")
        file.write_text("nonsense = 1\n")
        agent.process.send_signal(signal.SIGHUP)
        agent.wait_for(f"error: the configuration was not reloaded: {file}:1: nonsense: is not known here")
        file.write_text(f'{start}[scheduling]\nnice = 1\n[limits]\njobs = 3\n[log]\nfile = "{log}"\n')
        agent.process.send_signal(signal.SIGHUP)
        until(lambda: log.exists() and "configuration read again" in log.read_text())
        assert "warning: nice has changed in the configuration: restart the agent" in log.read_text()
        assert '"jobs": 3' in command("status", "--json", "--socket", tmp_path / "a.sock", check=True).stdout
        log.rename(tmp_path / "old.log")  # as logrotate does
        agent.process.send_signal(signal.SIGHUP)
        until(lambda: log.exists() and "configuration read again" in log.read_text())
    finally:
        assert agent.end() == 0


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user reaches, as pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@needs_root
def test_a_user_outside_of_the_group_is_refused_and_told_the_group(open_folder: Path) -> None:
    file = open_folder / "agent.toml"
    file.write_text(f'address = "{NETWORK}.1"\nsocket = "{open_folder}/run/a.sock"\ngroup = "daemon"\n')
    agent = AgentProcess("--config", file)
    try:
        agent.wait_for("ready")
        status = (open_folder / "run" / "a.sock").stat()
        assert (status.st_mode & 0o777, status.st_gid) == (0o660, grp.getgrnam("daemon").gr_gid)
        ask = ("status", "--json", "--socket", open_folder / "run" / "a.sock")
        refused = command(*ask, user="nobody", group="nogroup", extra_groups=[])
        assert refused.returncode == 1
        assert "user 'nobody' may not use the agent's socket" in refused.stderr
        assert "is for group 'daemon' (mode 0660); as root: `usermod -aG daemon nobody`" in refused.stderr
        assert command(*ask, user="nobody", group="nogroup", extra_groups=["daemon"]).returncode == 0
        checked = command("doctor", *ask[1:], user="nobody", group="nogroup", extra_groups=[])
        first = json.loads(checked.stdout)[0]
        assert (first["state"], first["fix"]) == ("fail", "run it as root, or as a member of the socket's group")
    finally:
        agent.end()
