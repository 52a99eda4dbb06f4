# SPDX-License-Identifier: Apache-2.0
"""What pages show of files is taken by the readers of such files."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gradlane.daemon import config
from gradlane.job import file as job_file
from gradlane.toml_file import FileError
from gradlane_controller.network import fabric_file
from tests.docs.pages import presumed
from tests.docs.pages.page_blocks import Block, all_blocks
from tests.docs.pages.special_blocks import Part, kind_of

PARTS = [
    (block, kind.of) for page in all_blocks().values() for block in page if isinstance(kind := kind_of(block), Part)
]
WORKER = '[[worker]]\nrank = {0}\nhost = "w{0}"\naddress = "10.1.{0}.2"\n'
OTHERS = "".join(WORKER.format(rank) for rank in (1, 2, 3))
MEMBERS = WORKER.format(0) + OTHERS
HEAD = '[job]\nname = "part"\nid = 1\nkey = "00112233445566ff00112233445566ff"\n'
EXCLUSIVE = ("sync", "loss.late")  # of these a job has one
# As `man logrotate` has them.
DIRECTIVES = {"weekly", "rotate", "compress", "delaycompress", "missingok", "notifempty", "postrotate", "endscript"}
COLOURS = ("green", "yellow", "red")


def job(text: str, _: Path) -> None:
    """A whole file with one worker of four, or tables of one: the others are as in any job."""
    if "[[server]]" in text:
        text = text.replace("[[server]]", OTHERS + "[[server]]")
    elif "[job]" in text:
        text = text.replace("[job]\n", HEAD) + MEMBERS
    else:
        text = HEAD + MEMBERS + text
    if "[slots]" not in text:
        text += "[slots]\nbase = 0\nmask = 4095\n"
    if 'deaths = "survive"' in text:
        text += '[sync]\nscheme = "ripples"\n'
    if "[transport]" not in text:
        text += '[transport]\nrate = "1gbit"\n'
    elif not re.search(r"^rate = ", text, re.MULTILINE):
        text = text.replace("[transport]\n", '[transport]\nrate = "1gbit"\n')
    for table in EXCLUSIVE if all(f"[{it}]" in text for it in EXCLUSIVE) else ("",):
        without = re.sub(rf"^\[{re.escape(table)}\].*?(?=^\[)", "", text, flags=re.MULTILINE | re.DOTALL)
        assert (without != text) == bool(table)
        job_file.parse(without, "job.toml")


def certified(text: str, folder: Path) -> str:
    """With certificates where it says."""
    presumed.write(folder)
    known = {"host": "me", "controller": "controller"}
    for name in re.findall(r"/etc/gradlane/([\w.-]+)", text):
        if not (folder / name).exists():
            ending = "key" if name.endswith("key") else "crt"
            made = folder / ("ca.pem" if "ca" in name else f"{known.get(Path(name).stem, 'me')}.{ending}")
            (folder / name).write_bytes(made.read_bytes())
    return text.replace("/etc/gradlane/", f"{folder}/").replace("/var/log/gradlane/", f"{folder}/")


def fabric(text: str, folder: Path) -> None:
    """With the spine that its link leads to."""
    text = certified(text, folder)
    fabric_file.parse(f'{text}\n[[switch]]\nname = "spine1"\naddress = "127.0.0.1:9560"\n', "fabric.toml")


def agent(text: str, folder: Path) -> None:
    """Its group is any that there is."""
    made = certified(text, folder).replace('group = "gradlane"', 'group = "root"')
    assert config.parse(made, "agent.toml").tls is not None


def sonic(text: str, _: Path) -> None:
    """Thresholds as the page's table has them, for 1 MB: a quarter and half of it."""
    [profile] = json.loads(text)["WRED_PROFILE"].values()
    assert profile.pop("ecn") in ("ecn_none", "ecn_green", "ecn_all")
    for colour in COLOURS:
        assert profile.pop(f"wred_{colour}_enable") == "true"
        low, high, share = (
            int(profile.pop(f"{colour}_{it}")) for it in ("min_threshold", "max_threshold", "drop_probability")
        )
        assert low in (250_000, 500_000)
        assert low < high <= 1_000_000
        assert 0 < share <= 100
    assert not profile


def logrotate(text: str, _: Path) -> None:
    """It has no library; its grammar is small."""
    files, rest = text.split("{")
    rules, script = rest.split("postrotate")
    script, end = script.split("endscript")
    assert files.strip().startswith("/")
    assert end.split() == ["}"]
    assert {line.split()[0] for line in rules.splitlines() if line.strip()} <= DIRECTIVES
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)


def mistakes(text: str, _: Path) -> None:
    """Files with these mistakes are told of in these words, at some line."""
    switch = '[[switch]]\nname = "leaf{}"\naddress = "{}"\n'
    fabric_text = switch.format(1, "127.0.0.1:9559") + switch.format(2, "leaf2")
    job_text = f'{HEAD}{MEMBERS}[transport]\nrate = "1gbit"\n[policy]\nyelow = 2\n[slots]\nbase = 0\nmask = 4095\n'
    told: list[str] = []
    for parse, made, name in ((fabric_file.parse, fabric_text, "fabric.toml"), (job_file.parse, job_text, "job.toml")):
        with pytest.raises(FileError) as caught:
            parse(made, name)
        told += str(caught.value).splitlines()
    for line in text.splitlines():
        pattern = re.sub(r":\d+:", r":\\d+:", re.escape(line)).replace(re.escape("..."), ".*")
        assert any(re.fullmatch(pattern, it) for it in told), (line, told)


READERS: dict[str, Callable[[str, Path], None]] = {
    "job": job, "fabric": fabric, "agent": agent, "sonic": sonic, "logrotate": logrotate, "mistakes": mistakes
}  # fmt: skip


@pytest.mark.parametrize(("block", "of"), PARTS, ids=lambda it: f"{it.page}:{it.line}" if isinstance(it, Block) else it)
def test_what_a_page_shows_of_a_file_is_taken(block: Block, of: str, tmp_path: Path) -> None:
    READERS[of](block.text, tmp_path)


@pytest.mark.parametrize(
    ("of", "text"),
    [
        ("job", "[transport]\ncolective = 1\n"),
        ("job", '[sync]\nscheme = "rippels"\n'),
        ("fabric", "[[switch]]\nname = 1\n"),
        ("logrotate", "/var/log/x {\n weekly\n hourli\n postrotate\n true\n endscript\n}\n"),
        ("mistakes", "job.toml:1: policy.green: is not known here"),
    ],
)
def test_what_is_wrong_is_refused(of: str, text: str, tmp_path: Path) -> None:
    with pytest.raises((FileError, AssertionError)):
        READERS[of](text, tmp_path)
