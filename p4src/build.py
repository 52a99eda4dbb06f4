#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the P4 program with p4c into p4src/build/, beside a digest of the sources that it was made from.

The output is committed, so that nobody needs p4c to run Gradlane; a test fails when it is stale.
"""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "build" / "v1model"
DIGEST = OUTPUT / "sources.sha256"


def sources_digest() -> str:
    """One line per source file, `sha256sum` format, paths relative to p4src/."""
    files = sorted(path for folder in ("shared", "v1model") for path in (HERE / folder).glob("*.p4"))
    return "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.relative_to(HERE).as_posix()}\n" for p in files)


def main() -> int:
    """Rebuilds the output. Returns the exit code."""
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        print(
            "make p4: p4c-bm2-ss is not on PATH. Build p4c (https://github.com/p4lang/p4c) with its BMv2 backend and "
            "put it on PATH; to run Gradlane without changing the P4 program you need no p4c.",
            file=sys.stderr,
        )
        return 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    command = [compiler, "--arch", "v1model", "--p4runtime-files", "build/v1model/gradlane.p4info.txtpb"]
    command += ["-o", "build/v1model/gradlane.json", "v1model/gradlane.p4"]
    # Run inside p4src, so that the paths in the output do not depend on the machine.
    if code := subprocess.run(command, cwd=HERE, check=False).returncode:
        return code
    DIGEST.write_text(sources_digest())
    print(f"wrote {OUTPUT.relative_to(HERE.parent)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
