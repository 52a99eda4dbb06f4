#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the program for Tofino and Tofino 2, and writes down what it takes of the chip.

The reports are committed, beside a digest of the sources; no binary is. Without a Tofino the program as a whole can't
run: the tests run its controls on a v1model target (tests/packet/tna_on_v1model).
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from build import GRADLANE, HERE, Tree, _files

OUTPUT = HERE / "build" / "tna"
TARGETS = {"tofino": "tna", "tofino2": "t2na"}
SOURCES = Tree(HERE, OUTPUT, _files(HERE, "shared/*.p4", "tna/*.p4"), ("tna/gradlane.p4",))


def report_file(target: str) -> Path:
    """Where a target's report is kept."""
    return OUTPUT / f"resources-{target}.txt"


def stage_usage(resources: dict[str, Any]) -> list[tuple[int, Counter[str]]]:
    """Per MAU stage of `resources.json`: how many units of each kind are in use."""
    stages: list[tuple[int, Counter[str]]] = []
    for stage in resources["resources"]["mau"]["mau_stages"]:
        usage: Counter[str] = Counter()
        for kind, unit in (("SRAM", "rams"), ("TCAM", "tcams"), ("map RAM", "map_rams"), ("table", "logical_tables")):
            usage[kind] = sum(bool(each["usages"]) for each in stage[unit].get("units", stage[unit].get("ids", [])))
        for alu in stage["meter_alus"]["meters"]:
            usage["meter or stateful ALU"] += bool(alu["usages"])
        stages.append((stage["stage_number"], usage))
    return stages


def _table(stages: list[tuple[int, Counter[str]]]) -> list[str]:
    kinds = ("table", "SRAM", "TCAM", "map RAM", "meter or stateful ALU")
    lines = ["stage  " + "  ".join(kinds)]
    lines += [f"{number:5}  " + "  ".join(f"{usage[k]:{len(k)}}" for k in kinds) for number, usage in stages]
    total = sum((usage for _, usage in stages), Counter[str]())
    return [*lines, "total  " + "  ".join(f"{total[k]:{len(k)}}" for k in kinds)]


def _report(target: str, folder: Path, version: str) -> str:
    logs = folder / "pipe" / "logs"
    stages = stage_usage(json.loads((logs / "resources.json").read_text()))
    used = [number for number, usage in stages if usage["table"]]
    phv = re.findall(r"^\| *(?:Overall|All|Usage|8b|16b|32b|Total).*$", (logs / "phv_allocation_summary_0.log").read_text(), re.M)
    return "\n".join(
        [
            f"{target} ({TARGETS[target]}): {len(used)} stages; {version}",
            "",
            *_table(stages),
            "",
            "PHV containers:",
            *dict.fromkeys(phv),
            "",
        ]
    )


def compile_for(target: str, driver: Path) -> str | None:
    """Compiles for a target and returns the report, or None when the compiler refuses."""
    version = subprocess.run([driver, "--version"], capture_output=True, text=True, check=False).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        command = [driver, "--target", target, "--arch", TARGETS[target], "-g", "-o", folder, "tna/gradlane.p4"]
        if subprocess.run(command, cwd=HERE, check=False).returncode:
            return None
        return _report(target, Path(folder), version)


def main() -> int:
    """Writes both reports. Returns the exit code."""
    backend = shutil.which("p4c-barefoot")
    if backend is None:
        print(
            "make p4-tna: p4c-barefoot is not on PATH. Build p4c (https://github.com/p4lang/p4c) with -DENABLE_TOFINO=ON "
            "and put its folder, with `p4c`, `p4c-barefoot` and `bfas`, first on PATH.",
            file=sys.stderr,
        )
        return 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for target in TARGETS:
        print(f"{target}: p4src/tna/gradlane.p4")
        report = compile_for(target, Path(backend).with_name("p4c"))
        if report is None:
            return 1
        report_file(target).write_text(report)
    SOURCES.digest_file.write_text(SOURCES.sources_digest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
