# SPDX-License-Identifier: Apache-2.0
"""What pages say to type exists: commands and flags of the programs, and make's targets and variables."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from tests.deploy.commands import PARSERS, all_commands
from tests.docs.test_links import PAGES
from tests.support.paths import ROOT

# A program where a command begins: first in a line but for variables, after a sign of the shell, or within another.
PROGRAM = re.compile(
    r"(?:^|[|;&(] *|\b(?:exec|time|sudo|sh|h\d)(?: h\d)? )(?:[A-Z_]+=\S* )*(?:[\w./$-]*/)?"
    rf"({'|'.join(sorted(PARSERS, key=len, reverse=True))})(?= )"
)
# Where a command ends: the shell's signs, and a comment.
END = re.compile(r"\s#|[|;<>&)]")
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
VARIABLES = set(re.findall(r"^(\w+) [?:]?=", MAKEFILE, re.MULTILINE)) | set(re.findall(r"\$\(([A-Z]+)\)", MAKEFILE))


@cache
def flags_of(program: str) -> dict[tuple[str, ...], tuple[frozenset[str], frozenset[str]]]:
    """By the words of a command: its flags, and the commands below it."""
    return {it.words: (it.flags | {"--help", "-h"}, it.below) for it in all_commands(program)}


def typed(page: str) -> list[str]:
    """The lines of code, and code within lines; a line that goes on in the next one is one."""
    page = re.sub(r" \\\n\s*", " ", page)
    fences = re.findall(r"^```(\w*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```|^    [^\n]*$", "", page, flags=re.MULTILINE | re.DOTALL)
    lines = [line for language, text in fences if language in ("", "sh") for line in text.splitlines()]
    code = re.findall(r"(?<=\n\n)(?:    \S.*\n)+", re.sub(r"^```.*?^```", "", page, flags=re.MULTILINE | re.DOTALL))
    lines += [line.strip() for block in code for line in block.splitlines()]
    return [*lines, *(" ".join(it.split()) for it in re.findall(r"`([^`]+)`", prose))]


def unknown(line: str) -> list[str]:
    """What of a line no program has, and no makefile."""
    found: list[str] = []
    for match in PROGRAM.finditer(line):
        program, rest = match[1], line[match.end() :]
        words = (END.split(rest)[0]).replace("[", " ").replace("]", " ").split()
        at: tuple[str, ...] = (program,)
        for word in words:
            flags, below = flags_of(program)[at]
            name = word.partition("=")[0]
            if name.startswith("-"):
                found += [f"{' '.join(at)} {name}"] if name not in flags and len(name) > 1 else []
            elif word in below:
                at = (*at, word)
            elif len(at) == 1 and below and word == words[0] and re.fullmatch(r"[a-z-]+", word):
                found.append(f"{program} {word}")
    if re.match(r"make [a-zA-Z]", line):
        for word in shlex.split(re.split(r"\s\s", END.split(line)[0])[0])[1:]:
            name, sign, _ = word.partition("=")
            if re.fullmatch(r"[\w-]+", name) and name not in (VARIABLES if sign else TARGETS):
                found.append(f"make {word}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_says_to_type_exists(page: Path) -> None:
    assert [problem for line in typed(page.read_text()) for problem in unknown(line)] == []


@pytest.mark.parametrize(
    "line",
    [
        "gradlane top --onse",
        "gradlane tpo",
        "/opt/gradlane/bin/gradlane agent --adress 10.0.1.2",
        "gradlane-controller status && gradlane-controller token create x --skope read",
        "gradlane-controller plan [--joob other.toml]",
        "gradlane-switch --cpuport 255 -i 1@eth1",
        "gradlane-switch port list --amdin switch.sock",
        "make demmo",
        "make demo SCENRIO=burst",
    ],
)
def test_what_does_not_exist_is_found(line: str) -> None:
    assert unknown(line)


def test_the_pages_have_commands_to_look_at() -> None:
    lines = [line for page in PAGES for line in typed(page.read_text())]
    assert sum(bool(PROGRAM.search(line)) for line in lines) > 120
    assert sum(line.startswith("make ") for line in lines) > 30
