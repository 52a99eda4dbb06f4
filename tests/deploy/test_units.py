# SPDX-License-Identifier: Apache-2.0
"""The files that systemd reads: it takes them, guides install them, and the programs take what they are run with."""

import re
import shlex
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest

from tests.deploy.commands import PARSERS
from tests.support.needs import needs
from tests.support.paths import DOCS, ROOT

DEPLOY = ROOT / "deploy" / "systemd"
UNITS = sorted(DEPLOY.glob("*.service"))
GUIDES = (DOCS / "agent.md", DOCS / "operations.md")
MOST_EXPOSED = 40  # tenths, as `systemd-analyze security` counts


def settings(unit: Path) -> list[tuple[str, str]]:
    """Names and values, in their order."""
    lines = [line for line in unit.read_text().splitlines() if line and line[0] not in "#["]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def commands(unit: Path) -> list[list[str]]:
    """Those of this project that a unit runs, with their arguments."""
    found = [shlex.split(value) for name, value in settings(unit) if name.startswith("Exec")]
    return [words for words in found if words[0].startswith("/opt/gradlane/")]


def test_the_guides_install_every_file() -> None:
    guides = "".join(guide.read_text() for guide in GUIDES)
    assert [file.name for file in DEPLOY.iterdir() if f" deploy/systemd/{file.name} /etc/" not in guides] == []


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_programs_take_their_arguments(unit: Path) -> None:
    assert commands(unit)
    for program, *arguments in commands(unit):
        parser: ArgumentParser = PARSERS[Path(program).name]()
        options = parser.parse_args(arguments)  # ends the program if it does not take them
        assert Path(options.config if "config" in options and options.config else options.file).suffix == ".toml"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_runs_as_a_user_of_its_own_that_is_made(unit: Path) -> None:
    found = dict(settings(unit))
    made = re.findall(r"^u (\S+)", "".join(it.read_text() for it in DEPLOY.glob("*.sysusers.conf")), re.MULTILINE)
    assert found["User"] == found["Group"]
    assert made.count(found["User"]) == 1
    assert len({dict(settings(it))["User"] for it in UNITS}) == len(UNITS)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_a_service_tells_of_its_life_and_reads_its_files_again_on_sighup(unit: Path) -> None:
    found = dict(settings(unit))
    assert (found["Type"], found["NotifyAccess"]) == ("notify", "main")
    assert int(found["WatchdogSec"]) > 0
    assert found["ExecReload"] == "/bin/kill -HUP $MAINPID"  # the last one, after the file was checked


@needs("systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_takes_the_unit(unit: Path, tmp_path: Path) -> None:
    # The program is where the guide installs it, which this machine need not have.
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"/opt/gradlane/bin/[\w-]+", str(program), unit.read_text()))
    verify = ["systemd-analyze", "verify", "--man=no", copy]
    found = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert [line for line in found.stderr.splitlines() if "gradlane" in line or str(tmp_path) in line] == []
    security = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", copy]
    exposure = subprocess.run(security, capture_output=True, text=True, check=False)
    assert exposure.returncode == 0, exposure.stdout + exposure.stderr
