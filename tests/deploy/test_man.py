# SPDX-License-Identifier: Apache-2.0
"""The manual pages have every command and flag, and man shows them without a warning."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.commands import PARSERS, all_commands
from tests.support.needs import needs
from tests.support.paths import DOCS, ROOT


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make man` makes."""
    folder = tmp_path_factory.mktemp("man")
    subprocess.run([sys.executable, ROOT / "deploy" / "man.py", folder], check=True, capture_output=True, timeout=300)
    return folder


@pytest.mark.parametrize("program", sorted(PARSERS))
def test_a_page_has_every_command_with_every_flag(pages: Path, program: str) -> None:
    text = re.sub(r"\\f[A-Z]|\\,|\\/", "", (pages / f"{program}.1").read_text()).replace("\\-", "-")
    title, *parts = re.split(r"^\.SH ", text, flags=re.MULTILINE)
    assert title.startswith(f'.TH {program.upper()} "1"')
    for each in all_commands(program):
        name = " ".join(each.words)
        # The program's own flags are in the sections that name no command.
        titles = f"'{name}'" if len(each.words) > 1 else ""
        own = [it for it in parts if (it.split("\n")[0].endswith(titles) if titles else "'" not in it.split("\n")[0])]
        assert own, name
        found = set(re.findall(r"(?<![\w-])--?[\w-]+", "\n".join(own)))
        assert each.flags - found == set(), name
        assert [it for it in each.below if f"{name} {it}" not in text] == []


@needs("man")
@pytest.mark.parametrize("program", sorted(PARSERS))
def test_man_shows_a_page_without_a_warning(pages: Path, program: str) -> None:
    show = ["man", "--warnings", "-E", "UTF-8", "-Tutf8", "-l", pages / f"{program}.1"]
    done = subprocess.run(show, capture_output=True, text=True, check=True, timeout=120)
    assert done.stderr == ""
    assert re.search(rf"^NAME\n +{program} +- +\w", re.sub(r".\x08", "", done.stdout), re.MULTILINE)


def test_the_guide_says_how_pages_and_scripts_are_installed() -> None:
    guide = (DOCS / "operations.md").read_text()
    assert "make man\n" in guide
    assert "python deploy/man.py out/man" in (ROOT / "Makefile").read_text()
    for shell in ("bash", "zsh"):
        assert f"gradlane-controller completion {shell} > " in guide
