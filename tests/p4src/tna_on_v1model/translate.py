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
DIGEST = BUILD / "sources.sha256"
PROGRAM, P4INFO = BUILD / "gradlane.json", BUILD / "gradlane.p4info.txtpb"
SUM_PROGRAM, SUM_P4INFO = BUILD / "gradlane-aggregation.json", BUILD / "gradlane-aggregation.p4info.txtpb"
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

Rule = tuple[str, str | Callable[[re.Match[str]], str]]
# A counter whose index is put together by a hash unit.
COUNTED: list[Rule] = [
    (r"Counter<bit<64>, bit<1[235]>>\((\w+), CounterType_t\.\w+\)", r"counter(\1, CounterType.packets_and_bytes)"),
    (r" *Hash<bit<1[235]>>\(HashAlgorithm_t\.IDENTITY\) \w+;\n", ""),
    (r"(\w+)\.count\(\w+\.get\(\{([^}]*)\}\)\)", lambda m: f"{m[1]}.count((bit<32>)({m[2].replace(',', ' ++')}))"),
]
# By file: patterns and what takes their place.
RULES: dict[str, list[Rule]] = {
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
    ],
    "telemetry.p4": COUNTED,
    "aggregation.p4": COUNTED,
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


# Within a macro a line ends with a backslash, and a name may have the macro's parameter pasted to its end.
_GAP, _NAME = r"[\s\\]*", r"[\w#]+"
_REGISTER = re.compile(rf"(?<!\w)Register<([\w<>]+), bit<\d+>>\((\w+)\) ({_NAME});")
_ACTION = re.compile(
    rf"RegisterAction<[\w<>]+, bit<\d+>, bit<\d+>>\(({_NAME})\) ({_NAME}) = \{{{_GAP}"
    rf"void apply(\([^)]*\))(.*?\}}){_GAP}\}};",
    re.DOTALL,
)
_STRUCT = re.compile(r"struct (\w+) \{((?:\s*bit<\d+>\s+\w+;)+)\s*\}")


def translate_registers(text: str) -> str:
    """The body of a RegisterAction becomes an action on the value, between a read and a write.

    v1model's registers have no structs: such a value is its fields in a row.
    """
    structs = {
        name: [(field, int(bits)) for bits, field in re.findall(r"bit<(\d+)>\s+(\w+);", fields)]
        for name, fields in _STRUCT.findall(text)
    }
    types = {register: of for of, _, register in _REGISTER.findall(text)}
    actions = {action: register for register, action, _, _ in _ACTION.findall(text)}

    def cell(of: str) -> str:
        return f"bit<{sum(bits for _, bits in structs[of])}>" if of in structs else of

    def execute(match: re.Match[str]) -> str:
        result, action, index, *more = (it and it.strip() for it in match.groups())
        register = actions[action]
        of, value = types[register], f"value_{action}"
        taken, given, top = "cell", value, 0
        if of in structs:
            top = sum(bits for _, bits in structs[of])
            slices: list[str] = []
            for _, bits in structs[of]:
                slices.append(f"cell[{top - 1}:{top - bits}]")
                top -= bits
            taken, given = f"{{ {', '.join(slices)} }}", " ++ ".join(f"{value}.{field}" for field, _ in structs[of])
        arguments = ", ".join(it for it in (value, result, *more) if it)
        return (
            f"{{ {cell(of)} cell; {register}.read(cell, (bit<32>){index}); {value} = {taken}; "
            f"apply_{action}({arguments}); {register}.write((bit<32>){index}, {given}); }}"
        )

    text = _REGISTER.sub(lambda m: f"register<{cell(m[1])}>({m[2]}) {m[3]};", text)
    text = _ACTION.sub(lambda m: f"{types[m[1]]} value_{m[2]}; action apply_{m[2]}{m[3]}{m[4]}", text)
    names = "|".join(map(re.escape, sorted(actions, key=len, reverse=True)))
    return re.sub(rf"(?:([\w.#]+) = )?(?<![\w#])({names})\.execute\(([^,()]+)(?:, ([^()]+))?\);", execute, text)


def translate(name: str, text: str) -> str:
    """One file of p4src/tna. Raises ValueError where a rule has nothing to do or something is left."""
    for pattern, replacement in RULES.get(name, []):
        text, found = re.subn(pattern, replacement, text)
        if found == 0:
            raise ValueError(f"{name}: nothing matches {pattern!r}; the rules in {Path(__file__).name} are out of date")
    if "RegisterAction<" in text:
        text = translate_registers(text)
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
        for macros, program, info in (((), PROGRAM, P4INFO), (("-DAGGREGATION",), SUM_PROGRAM, SUM_P4INFO)):
            command = [compiler, "--arch", "v1model", *macros, "--p4runtime-files", info, "-o", program]
            if code := subprocess.run([*command, "tna/gradlane.p4"], cwd=folder, check=False).returncode:
                return code
    DIGEST.write_text(sources_digest())
    return 0


if __name__ == "__main__":
    sys.exit(main())
