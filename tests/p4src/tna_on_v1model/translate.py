#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes p4src/tna as a v1model program, so that its controls can run where there is no Tofino.

Only the externs' spelling is translated; the tables, the actions and every decision remain as they are written. A rule
that finds nothing to translate, and an extern that no rule translates, are errors.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
P4_SOURCE = HERE.parents[2] / "p4src"
BUILD = HERE / "build"
PROGRAM, P4INFO, DIGEST = BUILD / "gradlane.json", BUILD / "gradlane.p4info.txtpb", BUILD / "sources.sha256"
# What a v1model target does with its own means: these files are v1model's.
OF_V1MODEL = ("checksums.p4",)
EXTERNS = (
    "Meter<",
    "DirectMeter",
    "Counter<",
    "Register",
    "Hash<",
    "ActionSelector",
    "Digest<",
    "Mirror(",
    "Checksum(",
)

# By file: patterns and what takes their place.
RULES: dict[str, list[tuple[str, str | Callable[[re.Match[str]], str]]]] = {
    "arch.p4": [
        # The targets' meters number the colours.
        (r"RED = 3", "RED = 2"),
        (r"const port_t CPU_PORT = \d+", "const port_t CPU_PORT = 255"),
        # Its queues are counted in packets.
        (r"DEPTH_UNIT = \d+", "DEPTH_UNIT = 0"),
        # v1model has no headers in metadata.
        (r"\bheader (?=(bridged|trimmed)_h)", "struct "),
        (
            r"DirectCounter<bit<64>>\(CounterType_t\.PACKETS_AND_BYTES\)",
            "direct_counter(CounterType.packets_and_bytes)",
        ),
        (r"Meter<index_t>\(cells, MeterType_t\.PACKETS\)", "meter(cells, MeterType.packets)"),
        (r"Meter<index_t>\(cells, MeterType_t\.BYTES\)", "meter(cells, MeterType.bytes)"),
        (r"color = \(Color\)meter\.execute\(index\)", "meter.execute_meter((bit<32>)index, color)"),
    ],
    "parser.p4": [
        (r"out (?=ingress_metadata_t|ingress_intrinsic_metadata_t)", "inout "),
        (r" *packet\.(extract\(ig_intr_md\)|advance\(PORT_METADATA_SIZE\));\n", ""),
        (r" *Checksum\(\) ipv4_checksum;\n", ""),
        (r" *ipv4_checksum\.add\(hdr\.ipv4\);\n *meta\.checksum_error = ipv4_checksum\.verify\(\);\n", ""),
        # Metadata that goes through the queues needs no parser.
        (r"(?s)// Ingress has found out what the packet is\.\nparser GradlaneEgressParser.*", ""),
    ],
    "routing.p4": [
        (r"ActionProfile\(NEXT_HOPS\) members", "action_selector(HashAlgorithm.identity, NEXT_HOPS, 16) members"),
        (r" *(@id\(0x11000002\)\n *)?ActionSelector\(members,[^;]*;\n", ""),
        (r"implementation = \w+", "implementation = members"),
        (r" *Hash<bit<16>>\(HashAlgorithm_t\.\w+\) \w+;\n", ""),
        (r"(?s)(meta\.spread) = ipv[46]_flow\.get\(([^;]*)\);", r"hash(\1, HashAlgorithm.crc32, 16w0, \2, 32w65536);"),
    ],
    "congestion.p4": [
        (r"DirectMeter\(MeterType_t\.BYTES\)", "direct_meter<Color>(MeterType.bytes)"),
        (r"([\w.]+) = \(Color\)share_meter\.execute\(\)", r"share_meter.read(\1)"),
        (r"Meter<port_t>\(PORTS, MeterType_t\.BYTES\)", "meter(PORTS, MeterType.bytes)"),
        (r"([\w.]+) = \(Color\)(\w+_queue)\.execute\(([\w.]+)\)", r"\2.execute_meter((bit<32>)\3, \1)"),
        (r"(?<!\w)Register<bit<32>, bit<16>>\(BUDGET_SLOTS\)", "register<bit<32>>(BUDGET_SLOTS)"),
        (r"(?<!\w)Register<slot_t, bit<16>>\(BUDGET_SLOTS\)", "register<bit<32>>(BUDGET_SLOTS)"),
        # The body becomes an action on the value, between a read and a write.
        (
            r"(?s)RegisterAction<(\w+|bit<32>), bit<16>, bit<1>>\(\w+\) (\w+) = \{\n"
            r" *void apply(.*?\n        \})\n    \};",
            r"\1 \2_value;\n    action \2_apply\3",
        ),
        (
            r"( *)([\w.]+) = (claim|look)\.execute\(meta\.slot_base\[15:0\]\);",
            r"\1@atomic { newest.read(\3_value, (bit<32>)meta.slot_base[15:0]); \3_apply(\3_value, \2);"
            r" newest.write((bit<32>)meta.slot_base[15:0], \3_value); }",
        ),
        (
            r"( *)([\w.]+) = (take)\.execute\(meta\.slot_base\[15:0\]\);",
            r"\1@atomic { bit<32> cell; budgets.read(cell, (bit<32>)meta.slot_base[15:0]);"
            r" \3_value = { cell[31:16], cell[15:0] }; \3_apply(\3_value, \2);"
            r" budgets.write((bit<32>)meta.slot_base[15:0], \3_value.message ++ \3_value.drops); }",
        ),
    ],
    "telemetry.p4": [
        (r"Counter<bit<64>, bit<1[35]>>\((\w+), CounterType_t\.\w+\)", r"counter(\1, CounterType.packets_and_bytes)"),
        (r" *Hash<bit<1[35]>>\(HashAlgorithm_t\.IDENTITY\) \w+;\n", ""),
        (r"(\w+)\.count\(\w+\.get\(\{([^}]*)\}\)\)", lambda m: f"{m[1]}.count((bit<32>)({m[2].replace(',', ' ++')}))"),
    ],
    "gradlane.p4": [
        (r"#if __TARGET_TOFINO__ == 2\n#include <t2na\.p4>\n#else\n(#include) <tna\.p4>\n#endif", r'\1 "../tna.p4"'),
        # A copy through a hash unit is a copy.
        (r" *Hash<bit<16>>\(HashAlgorithm_t\.IDENTITY\) \w+;\n", ""),
        (r"= (?:copy|lower_half|lower_half_again)\.get\(\{ ([^}]*) \}\)", r"= \1"),
        (r" *meta\.bridged\.setValid\(\);\n", ""),
        (r"meta\.trimmed\.isValid\(\)", "meta.trimmed.origin == Origin.TRIMMED"),
        (r"(?s)control GradlaneIngressDeparser.*", '#include "../switch.p4"\n'),
    ],
}


def translate(name: str, text: str) -> str:
    """One file of p4src/tna. Raises ValueError where a rule has nothing to do or something is left."""
    for pattern, replacement in RULES.get(name, []):
        text, found = re.subn(pattern, replacement, text)
        if found == 0:
            raise ValueError(f"{name}: nothing matches {pattern!r}; the rules in {Path(__file__).name} are out of date")
    code = re.sub(r"//.*", "", text)
    if left := [extern for extern in EXTERNS if extern in code]:
        raise ValueError(f"{name}: no rule translates {', '.join(left)}")
    return text


def write(folder: Path) -> None:
    """The whole program into an empty folder: tna/gradlane.p4 and what it includes."""
    shutil.copytree(P4_SOURCE / "shared", folder / "shared")
    for name in ("tna.p4", "switch.p4"):
        shutil.copy(HERE / name, folder)
    (folder / "tna").mkdir()
    for source in sorted((P4_SOURCE / "tna").glob("*.p4")):
        if source.name in OF_V1MODEL:
            shutil.copy(P4_SOURCE / "v1model" / source.name, folder / "tna")
        else:
            (folder / "tna" / source.name).write_text(translate(source.name, source.read_text()))


def sources_digest() -> str:
    """One line per source file, `sha256sum` format."""
    sources = [
        *(P4_SOURCE / "shared").glob("*.p4"),
        *(P4_SOURCE / "tna").glob("*.p4"),
        *(P4_SOURCE / "v1model" / name for name in OF_V1MODEL),
        *HERE.glob("*.p4"),
        Path(__file__),
    ]
    names = {source.resolve().relative_to(P4_SOURCE.parent).as_posix(): source for source in sources}
    return "".join(f"{hashlib.sha256(names[name].read_bytes()).hexdigest()}  {name}\n" for name in sorted(names))


def main() -> int:
    """Compiles the translation into `build`. Returns the exit code."""
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        print("p4c-bm2-ss is not on PATH, see `make p4`", file=sys.stderr)
        return 1
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        command = [compiler, "--arch", "v1model", "--p4runtime-files", P4INFO, "-o", PROGRAM, "tna/gradlane.p4"]
        code = subprocess.run(command, cwd=folder, check=False).returncode
    if code == 0:
        DIGEST.write_text(sources_digest())
    return code


if __name__ == "__main__":
    sys.exit(main())
