#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the program for Tofino, and writes down what it takes of the chip.

The reports are committed, beside a digest of the sources; no binary is. Without a Tofino the program as a whole can't
run: the tests run its controls on a v1model target (tests/p4src/tna_on_v1model).
"""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "build" / "tna"
DIGEST = OUTPUT / "sources.sha256"
# The assembler's word on a parser that has lost what it selects by: p4c from its pull request 5063 to 5753.
NO_SELECT = "Can't match parser state due to previous match"
COLUMNS = ("logical tables", "SRAMs", "TCAMs", "map RAMs", "meters", "stateful ALUs")


@dataclass(frozen=True)
class Profile:
    """The program with some macros, for one chip."""

    name: str
    target: str
    arch: str
    stages: int  # that the chip has
    macros: tuple[str, ...] = ()

    @property
    def report_file(self) -> Path:
        """Where its report is kept."""
        return OUTPUT / f"resources-{self.name}.txt"


# What there is no room for is left out: docs/tofino.md.
PROFILES = (
    Profile("tofino", "tofino", "tna", 12, ("-DSMALLER_PROFILE",)),
    Profile("tofino2", "tofino2", "t2na", 20),
    Profile("tofino2-aggregation", "tofino2", "t2na", 20, ("-DAGGREGATION",)),
)


def sources_digest() -> str:
    """One line per source file, `sha256sum` format."""
    sources = sorted([*HERE.glob("shared/*.p4"), *HERE.glob("tna/*.p4")])
    return "".join(f"{hashlib.sha256(s.read_bytes()).hexdigest()}  {s.relative_to(HERE).as_posix()}\n" for s in sources)


def usage(stage: dict[str, Any]) -> tuple[int, ...]:
    """What a stage of `resources.json` has in use, by `COLUMNS`."""
    alus = [use["used_for"] for alu in stage["meter_alus"]["meters"] for use in alu["usages"]]
    stateful = sum("stateful" in use for use in alus)
    return (
        len(stage["logical_tables"]["ids"]),
        sum(bool(ram["usages"]) for ram in stage["rams"]["srams"]),
        sum(bool(ram["usages"]) for ram in stage["tcams"]["tcams"]),
        sum(bool(ram["usages"]) for ram in stage["map_rams"]["maprams"]),
        len(alus) - stateful,
        stateful,
    )


def report(profile: Profile, folder: Path, version: str) -> str:
    """The report, from the logs that the compiler has left in its output folder."""
    logs = folder / "pipe" / "logs"
    mau = json.loads((logs / "resources.json").read_text())["resources"]["mau"]
    stages = [usage(stage) for stage in mau["mau_stages"]]
    while not any(stages[-1]):
        stages.pop()
    rows = [*map(str, range(len(stages))), "all"]
    lines = ["  ".join(("stage", *COLUMNS))]
    for row, values in zip(rows, [*stages, [sum(column) for column in zip(*stages, strict=True)]], strict=True):
        cells = (f"{value:>{len(name)}}" for name, value in zip(COLUMNS, values, strict=True))
        lines.append("  ".join((f"{row:>5}", *cells)))
    last = max(logs.glob("phv_allocation_summary_*.log"), key=lambda path: int(path.stem.rsplit("_", 1)[1]))
    phv = re.findall(r"^\| *(Usage for \d+b|Overall PHV Usage) *\| *(\d+) *\( *([\d.]+) *%\)", last.read_text(), re.M)
    containers = [f"{name}: {number} containers ({share} %)" for name, number, share in phv]
    return "\n".join((f"{profile.name}: {len(stages)} stages ({version})", "", *lines, "", *containers, ""))


def compile_profile(profile: Profile, driver: Path) -> str | None:
    """Compiles a profile and returns the report, or None when the compiler refuses."""
    version = subprocess.run([driver, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        command = [driver, "--target", profile.target, "--arch", profile.arch, *profile.macros]
        command += ["-g", "-o", folder, "tna/gradlane.p4"]
        result = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        print(result.stdout + result.stderr, file=sys.stderr)
        if NO_SELECT in result.stdout + result.stderr:
            print("make p4-tna: this p4c loses parser selects, it needs pull request 5753", file=sys.stderr)
            return None
        if result.returncode:
            return None
        return report(profile, Path(folder), version)


def main() -> int:
    """Writes the reports. Returns the exit code."""
    backend = shutil.which("p4c-barefoot")
    if backend is None:
        print(
            "make p4-tna: p4c-barefoot is not on PATH. Build p4c (https://github.com/p4lang/p4c) with "
            "-DENABLE_TOFINO=ON and put its folder, with `p4c`, `p4c-barefoot` and `bfas`, first on PATH.",
            file=sys.stderr,
        )
        return 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for profile in PROFILES:
        print(f"{profile.name}: p4src/tna/gradlane.p4")
        text = compile_profile(profile, Path(backend).with_name("p4c"))
        if text is None:
            return 1
        profile.report_file.write_text(text)
    DIGEST.write_text(sources_digest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
