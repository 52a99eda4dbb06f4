# SPDX-License-Identifier: Apache-2.0
"""What the files of a release are: their names, their contents, their digests, and whose licences they come with."""

import email
import hashlib
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.support.paths import DOCS, ROOT

VERSION = (ROOT / "VERSION").read_text().strip()
# Without what only an SBOM tool can't tell: protobuf declares "3-Clause BSD License", which is no name of SPDX.
UNDECLARED = {"protobuf"}


def wheel_of(packages: Path, name: str) -> zipfile.ZipFile:
    (wheel,) = packages.glob(f"{name}-{VERSION}-*.whl")
    return zipfile.ZipFile(wheel)


def metadata(packages: Path, name: str) -> Message:
    return email.message_from_bytes(wheel_of(packages, name).read(f"{name}-{VERSION}.dist-info/METADATA"))


def test_there_is_a_wheel_and_an_sdist_of_each_of_one_version_with_its_digest(packages: Path) -> None:
    names = sorted(re.sub(r"manylinux_2_\d+_\w+", "PLATFORM", file.name) for file in packages.iterdir())
    assert names == sorted([
        f"gradlane-{VERSION}-cp310-abi3-PLATFORM.whl",
        f"gradlane_switch-{VERSION}-py3-none-any.whl",
        f"gradlane_controller-{VERSION}-py3-none-any.whl",
        *(f"{name}-{VERSION}.tar.gz" for name in ("gradlane", "gradlane_switch", "gradlane_controller")),
        "python.cdx.json", "page.cdx.json", "SHA256SUMS",
    ])  # fmt: skip
    listed = dict(reversed(line.split("  ")) for line in (packages / "SHA256SUMS").read_text().splitlines())
    found = {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in packages.iterdir()}
    assert listed == {name: digest for name, digest in found.items() if name != "SHA256SUMS"}


def test_switch_and_controller_need_the_agents_package_of_their_own_version(packages: Path) -> None:
    for name in ("gradlane_switch", "gradlane_controller"):
        assert f"gradlane=={VERSION}" in metadata(packages, name).get_all("Requires-Dist", [])


def test_every_extra_is_documented_and_the_agent_itself_needs_no_framework(packages: Path) -> None:
    found = metadata(packages, "gradlane")
    page = (DOCS / "releases.md").read_text()
    assert [extra for extra in found.get_all("Provides-Extra", []) if f"| `{extra}` |" not in page] == []
    needed = [line for line in found.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(re.split(r"[ <>=;]", line)[0] for line in needed) == ["cffi", "cryptography", "numpy", "tomli"]


@pytest.mark.parametrize("name", ["gradlane", "gradlane_switch", "gradlane_controller"])
def test_what_a_package_needs_is_there_for_the_oldest_python_that_it_names(
    packages: Path, name: str, tmp_path: Path
) -> None:
    oldest = metadata(packages, name)["Requires-Python"].removeprefix(">=")
    install = [sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--target", tmp_path]
    there = ["--python-version", oldest, "--only-binary=:all:", "--find-links", packages]
    done = subprocess.run(
        [*install, *there, f"{name}=={VERSION}"], capture_output=True, text=True, check=False, timeout=600
    )
    assert not done.returncode, done.stderr


@pytest.mark.parametrize("name", ["gradlane", "gradlane_switch", "gradlane_controller"])
def test_a_package_has_every_tracked_file_of_its_own_and_no_other(packages: Path, name: str) -> None:
    """As far as they are used: the wheel of the agent has its core compiled, and its sdist the sources."""
    part = {"gradlane": "agent"}.get(name, name.removeprefix("gradlane_"))
    source = ROOT / part / "src"
    wanted = {
        path.relative_to(source).as_posix()
        for folder in (source, *(it for it in (source / name).iterdir() if it.is_symlink()))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in {".pyc", ".so", ".md"} and ".egg-info" not in str(path)
    }
    there = set(wheel_of(packages, name).namelist())
    core = {path for path in wanted if path.startswith("gradlane/core/")}
    inside = {path for path in there if path.startswith(f"{name}/") and not path.endswith("/")}
    assert inside == wanted - core | ({"gradlane/_core.abi3.so"} if core else set())
    assert f"{name}-{VERSION}.dist-info/licenses/LICENSE" in there
    with tarfile.open(packages / f"{name}-{VERSION}.tar.gz") as sdist:
        packed = {member.name.partition("/")[2]: member for member in sdist.getmembers() if member.isfile()}
    assert {f"src/{path}" for path in wanted} <= packed.keys()
    assert {(it.uid, it.gid, it.uname, it.gname) for it in packed.values()} == {(0, 0, "", "")}
    assert len({it.mtime for it in packed.values()}) == 1


def test_the_bills_of_materials_name_what_is_needed_with_its_licence(packages: Path) -> None:
    python = {it["name"]: it for it in json.loads((packages / "python.cdx.json").read_text())["components"]}
    needed = {"numpy", "cffi", "cryptography", "finsy", "grpcio", "fastapi", "uvicorn", "SQLAlchemy", "alembic"}
    assert python.keys() >= needed | {"gradlane", "gradlane-switch", "gradlane-controller"}
    assert {name for name, it in python.items() if not it.get("licenses")} <= UNDECLARED
    page = json.loads((packages / "page.cdx.json").read_text())["components"]
    shipped = re.findall(
        r"^(\S+) (\d\S+) \((\S+)\)$", (ROOT / "controller/src/gradlane_controller/page/licences.txt").read_text(), re.M
    )
    assert shipped
    listed = {(it["name"], it["version"]): it["licenses"] for it in page}
    for name, version, licence in shipped:
        assert listed[name, version] == [{"license": {"id": licence}}]
