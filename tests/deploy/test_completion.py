# SPDX-License-Identifier: Apache-2.0
"""bash and zsh complete every command, flag and choice of the programs, and files."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.commands import MODULES, PARSERS, all_commands
from tests.support import zygote
from tests.support.needs import needs

PROGRAMS = sorted(PARSERS)


def script(program: str, shell: str) -> str:
    """What the program prints for a shell."""
    return zygote.run([sys.executable, "-m", MODULES[program], "completion", shell], 60, check=True).stdout


def completed(program: str, lines: list[list[str]], folder: Path) -> list[set[str]]:
    """What bash offers for each of these lines, the last word of which is being typed."""
    (folder / "script").write_text(script(program, "bash"))
    asked = [f"source {shlex.quote(str(folder / 'script'))}"]
    asked.append(f"read -r _ _ function _ <<<\"$(complete -p {program} | sed 's/.*-F/complete -F/')\"")
    for words in lines:
        typed = " ".join(map(shlex.quote, words))
        asked.append(f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(typed)}; COMPREPLY=()")
        last, before = shlex.quote(words[-1]), shlex.quote(words[-2])
        asked.append(f'"$function" {program} {last} {before}; printf "%s\\n" "${{COMPREPLY[@]}}" "--end of line--"')
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(asked)], capture_output=True, text=True, check=True, cwd=folder, timeout=120
    )
    assert done.stderr == ""
    found = done.stdout.split("--end of line--\n")[:-1]
    return [set(each.split()) for each in found]


@pytest.mark.parametrize("program", PROGRAMS)
def test_bash_completes_every_command_flag_and_choice(program: str, tmp_path: Path) -> None:
    every = all_commands(program)
    assert len(every) > 4
    lines: list[list[str]] = []
    wanted: list[frozenset[str]] = []
    for each in every:
        lines += [[*each.words, "-"], *([[*each.words, ""]] if each.below else [])]
        wanted += [each.flags, *([each.below] if each.below else [])]
        for name in each.below:
            lines.append([*each.words, name[:-1]])
            wanted.append(frozenset({name}))
        for flag, choices in each.choices.items():
            lines.append([*each.words, flag, ""])
            wanted.append(choices)
    found = completed(program, lines, tmp_path)
    assert len(found) == len(lines)
    assert [
        (line, sorted(want - have)) for line, want, have in zip(lines, wanted, found, strict=True) if want - have
    ] == []
    # Nothing is offered that is not there.
    for line, want, have in zip(lines, wanted, found, strict=True):
        if line[-1] == "-":
            assert have - want <= {"-h", "--help"}, line


def test_bash_completes_files_where_a_flag_takes_one(tmp_path: Path) -> None:
    (tmp_path / "fabric.toml").touch()
    (tmp_path / "folder").mkdir()
    flags = ["--fabric", "--tls-cert", "--config"]
    lines = [["gradlane-controller", "run", flag, "f"] for flag in flags]
    assert completed("gradlane-controller", lines, tmp_path) == [{"fabric.toml", "folder"}] * 3
    assert completed("gradlane-controller", [["gradlane-controller", "export", "f"]], tmp_path) == [{"folder"}]


@needs("zsh")
@pytest.mark.parametrize("program", PROGRAMS)
def test_zsh_takes_the_script_which_has_every_command_and_flag(program: str, tmp_path: Path) -> None:
    text = script(program, "zsh")
    (tmp_path / f"_{program}").write_text(text)
    loads = (
        f"fpath=({shlex.quote(str(tmp_path))} $fpath); autoload -U compinit; compinit -u -D; print $_comps[{program}]"
    )
    done = subprocess.run(["zsh", "-f", "-c", loads], capture_output=True, text=True, check=True, timeout=120)
    assert (done.stdout.strip(), done.stderr) == (f"_{program}", "")
    subprocess.run(["zsh", "-n", tmp_path / f"_{program}"], check=True, timeout=120)
    words = {
        word.strip("\"'{},()*")
        for line in text.splitlines()
        for word in line.replace("[", " ").replace(":", " ").split()
    }
    words |= {part for word in words for part in word.split(",")}
    missing = {text for each in all_commands(program) for text in each.flags | each.below} - words
    assert missing == set()
