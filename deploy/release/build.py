# SPDX-License-Identifier: Apache-2.0
"""`make dist`: wheels and sdists of the three distributions, of the tracked files as they are.

python deploy/release/build.py MANUAL_PAGES FOLDER

Everything is built twice, in folders of different names: if a byte differs, nothing is left in FOLDER.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTIONS = {"agent": "gradlane", "switch": "gradlane-switch", "controller": "gradlane-controller"}
TOOLS = Path(sys.executable).parent  # of the environment with deploy/release/requirements.txt


def epoch() -> int:
    """When the last commit was made: the time of everything in the packages."""
    return int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=ROOT))


def export(folder: Path) -> None:
    """Copies the tracked files, with links as links, as they are in the working tree."""
    listed = subprocess.check_output(
        ["git", "ls-files", "-z", *DISTRIBUTIONS, "deploy", "p4src", "VERSION", "LICENSE", "LICENSES"], cwd=ROOT
    )
    for name in listed.decode().split("\0")[:-1]:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name, follow_symlinks=False)  # not its mode


def normalised(sdist: Path, when: int) -> None:
    """Writes an sdist again, without what depends on who packed it, when and where; setuptools can't."""
    with tarfile.open(sdist) as packed:
        members = sorted(packed.getmembers(), key=lambda member: member.name)
        contents = [packed.extractfile(member) if member.isfile() else None for member in members]
        with (
            sdist.with_suffix(".new").open("wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=when) as compressed,
            tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as again,
        ):
            for member, content in zip(members, contents, strict=True):
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mtime = when
                member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
                member.pax_headers = {}
                again.addfile(member, content)
    sdist.with_suffix(".new").replace(sdist)


def build(folder: Path, pages: Path, environment: dict[str, str]) -> Path:
    """Builds in an empty folder. Returns the one with sdists and wheels."""
    source, built = folder / "source", folder / "built"
    export(source)
    for part, name in DISTRIBUTIONS.items():
        (source / part / "man").mkdir()
        shutil.copyfile(pages / f"{name}.1", source / part / "man" / f"{name}.1")
        run = [sys.executable, "-m", "build", "--no-isolation"]
        subprocess.run(
            [*run, "--sdist", "--outdir", built, source / part], check=True, env=environment, stdout=subprocess.PIPE
        )
        (sdist,) = built.glob(f"{name.replace('-', '_')}-[0-9]*.tar.gz")
        normalised(sdist, int(environment["SOURCE_DATE_EPOCH"]))
        # The wheel is that of the sdist, so the sdist has everything that is needed.
        unpacked = folder / part
        shutil.unpack_archive(sdist, unpacked)
        (unpacked,) = unpacked.iterdir()
        # No path of this folder in what the compiler writes.
        flags = {"CFLAGS": f"-g0 -ffile-prefix-map={unpacked}=."}
        subprocess.run(
            [*run, "--wheel", "--outdir", built, unpacked], check=True, env=environment | flags, stdout=subprocess.PIPE
        )
    for wheel in built.glob("*-linux_*.whl"):
        subprocess.run(
            [TOOLS / "auditwheel", "repair", "--plat", "auto", "--wheel-dir", built, wheel], check=True, env=environment
        )
        wheel.unlink()
    for wheel in built.glob("*-abi3-*.whl"):
        subprocess.run([TOOLS / "abi3audit", "--strict", "--summary", wheel], check=True, env=environment)
    return built


def digests(folder: Path) -> str:
    """One line per file, `sha256sum` format."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def main(pages: Path, output: Path) -> int:
    """Builds into the folder `output`. Returns the exit code."""
    os.umask(0o022)
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(epoch()), PATH=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="a") as one, tempfile.TemporaryDirectory(prefix="another-") as other:
        first, second = (build(Path(folder), pages, environment) for folder in (one, other))
        if digests(first) != digests(second):
            print(f"make dist: two builds differ:\n{digests(first)}\n{digests(second)}", file=sys.stderr)
            return 1
        shutil.copytree(first, output)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
