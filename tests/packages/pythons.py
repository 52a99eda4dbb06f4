# SPDX-License-Identifier: Apache-2.0
"""Tries the packages on other Pythons: `python -m tests.packages.pythons out/dist FOLDER python3.10 python3.12 ...`.

Each gets an environment in FOLDER with what `make dist` has made, as far as it takes it, and runs tests there that need
no framework.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

NEEDED = ("pytest>=8", "hypothesis>=6.100", "tomlkit>=0.13", "tomli-w>=1.0", "tomli>=2", "prometheus-client>=0.20")
TESTS = ("client/test_communicator.py", "job", "ipc", "test_wire.py", "test_toml_file.py")


def says(python: str, code: str) -> bool:
    """Whether that Python runs the code without an error."""
    return not subprocess.run([python, "-c", code], check=False, capture_output=True).returncode


def takes(python: str, wheel: Path) -> bool:
    """Whether that Python is new enough for the wheel."""
    with zipfile.ZipFile(wheel) as files:
        [name] = [it for it in files.namelist() if it.endswith(".dist-info/METADATA")]
        text = files.read(name).decode()
    [oldest] = [line.split(">=3.")[1] for line in text.splitlines() if line.startswith("Requires-Python: ")]
    return says(python, f"import sys; assert sys.version_info >= (3, {oldest})")


def attempt(python: str, packages: Path, folder: Path) -> bool:
    """Whether everything works there."""
    subprocess.run([python, "-m", "venv", "--clear", folder], check=True)
    wheels = [it for it in sorted(packages.glob("*.whl")) if takes(python, it)]
    pip = [folder / "bin/pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, *wheels, *NEEDED], check=True)
    tests = [f"tests/gradlane/{it}" for it in TESTS]
    tests += ["tests/packages/test_installed.py"] if len(wheels) == 3 else []
    options = ["-q", "-p", "no:cacheprovider", "--packages", packages, "--installed", folder]
    done = subprocess.run(
        [folder / "bin/python", "-m", "pytest", *options, *tests],
        check=False,
        # Of the repository only what the tests themselves are made of.
        env=os.environ | {"PYTHONPATH": "mininet", "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"},
    )
    return not done.returncode


def main(packages: str, folder: str, *pythons: str) -> int:
    """The exit status: 1 if something failed, or no Python is there."""
    found = [it for it in pythons if shutil.which(it) and says(it, "")]
    for name in set(pythons) - set(found):
        print(f"left out, as it is not there: {name}", file=sys.stderr)
    worked = [attempt(it, Path(packages).resolve(), Path(folder).resolve() / Path(it).name) for it in found]
    return 0 if worked and all(worked) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
