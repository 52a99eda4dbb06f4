# SPDX-License-Identifier: Apache-2.0
"""A wheel is built on one machine and runs on another: the core uses no instruction that not every CPU has.

But for its loops over elements, which are compiled for several, and give the same whichever is taken.
"""

import json
import platform
import re
import subprocess
import sys

import pytest

from gradlane import _core
from gradlane.job import elements
from tests.support.agents import command
from tests.support.needs import needs

x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64")
# Registers and prefixes that only later CPUs have: AVX, and of scalars BMI, POPCNT, LZCNT and FMA. Not TZCNT, which
# compilers use for any CPU: earlier ones take it for BSF, the same unless all bits are 0.
_LATER = re.compile(r"%[yz]mm|\tv[a-z]|\t(?:andn[lq]?|bextr|shlx|shrx|sarx|rorx|mulx|popcnt|lzcnt)\b")
# What may: the copies for a level, and what is called after a look at the CPU.
_CHOSEN = re.compile(r"\.arch_x86_64_v[34]|_f16c")
CPUS = {"qemu64": "x86-64", "Haswell": "x86-64-v3"}

SCRIPT = """
import hashlib, importlib.util, json, random, sys
spec = importlib.util.spec_from_file_location("_core", sys.argv[1])
core = importlib.util.module_from_spec(spec)
spec.loader.exec_module(core)
ffi, lib = core.ffi, core.lib
types = json.loads(sys.argv[2])
chance = random.Random(1)
found = {"computes_with": ffi.string(lib.gl_computes_with()).decode()}
for n in (1, 7, 8, 513, 2000):
    values = ffi.new("float[]", [chance.gauss(0, 1) for _ in range(3 * n)])
    wide = ffi.cast("uint8_t *", values)
    for name, (code, item) in types.items():
        sources = ffi.new("uint8_t[]", 3 * n * item)
        lib.gl_convert(sources, code, wide, types["float32"][0], 3 * n)
        of = ffi.new("uint8_t *[]", [sources, sources + n * item])
        out = ffi.new("uint8_t[]", n * item)
        worth = lib.gl_contribute(out, of, 2, 3, sources + 2 * n * item, n, code)
        found[f"{name} {n}"] = [hashlib.sha256(ffi.buffer(out)).hexdigest(), worth.mean.hex(), worth.squares.hex()]
    quantiles = ffi.new("uint8_t[]", n)
    lib.gl_quantiles(ffi.new("float[]", [abs(chance.gauss(0, 1)) for _ in range(n)]), n, quantiles)
    found[f"quantiles {n}"] = hashlib.sha256(ffi.buffer(quantiles)).hexdigest()
print(json.dumps(found))
"""


@x86
@needs("objdump")
def test_the_library_has_no_instruction_of_later_cpus() -> None:
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", _core.__file__], check=True, capture_output=True, text=True
    ).stdout
    later: dict[str, str] = {}
    functions: set[str] = set()
    for section in text.split("\n\n"):
        if found := re.match(r"\s*[0-9a-f]+ <(.+)>:", section):
            functions.add(found[1])
            if wrong := next((line for line in section.splitlines() if _LATER.search(line)), None):
                later[found[1]] = wrong
    assert any("arch_x86_64_v3" in name for name in functions), "stripped, or without copies"
    assert any(_CHOSEN.search(name) for name in later), "the pattern finds nothing"
    assert not {name: line for name, line in later.items() if not _CHOSEN.search(name)}


def computed(*prefix: str) -> dict[str, object]:
    types = {name: (elements.CODES[name], elements.bytes_of(name)) for name in elements.FLOATS}
    argv = [*prefix, sys.executable, "-c", SCRIPT, str(_core.__file__), json.dumps(types)]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120).stdout)


@x86
@needs("qemu-x86_64")
@pytest.mark.parametrize("cpu", CPUS)
def test_it_runs_on_another_cpu_and_computes_the_same(cpu: str) -> None:
    here, there = computed(), computed("qemu-x86_64", "-cpu", cpu)
    assert there.pop("computes_with") == CPUS[cpu]
    here.pop("computes_with")
    assert there == here


def test_version_says_which_instruction_sets_there_are() -> None:
    said = command("--version", check=True).stdout
    assert "the core is built for" in said
    if platform.machine() == "x86_64":
        assert "built for x86-64" in said
