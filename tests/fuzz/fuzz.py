# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of the switch's C code: its runtime and several generated programs, under ASan and UBSan.

libFuzzer makes inputs up from those that reached something new. An input is a sequence of frames, changes of the
control plane, of ports and of time; see run.c. What reached something new is kept in out/fuzz/corpus. An input that
fails is kept in out/fuzz; give its name to this script to run it again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gradlane_switch.bmv2_json.program import load
from gradlane_switch.codegen.program import generate
from gradlane_switch.native.build import RUNTIME
from tests.fuzz.describe import describe
from tests.fuzz.seeds import inputs
from tests.support.paths import CORPUS, PROGRAM, ROOT

HERE = Path(__file__).resolve().parent
OUT = ROOT / "out" / "fuzz"
PROGRAMS = (
    PROGRAM,
    *(
        CORPUS / f"{name}.json"
        for name in (
            "varbit",
            "stack_runtime_index",
            "union_stack",
            "mixed_wide",
            "wide_registers",
            "checksum_payload",
            "copies_combined",
            "match_many",
            "action_selector",
            "parser_value_set",
            "two_digests",
            "truncate",
            "priority",
        )
    ),
)
TRACED = ("gradlane", "copies_combined", "union_stack")
COMPILERS = ("clang", "clang-14", "clang-15", "clang-16", "clang-17", "clang-18", "clang-19")
_SANITIZE = "address,undefined"
_FLAGS = (
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-gline-tables-only",
    "-fno-omit-frame-pointer",
    "-fno-sanitize-recover=all",
    "-DGL_SLAB_PACKETS=1",
)
_QUIET = ("-Wno-unused-label", "-Wno-unused-function", "-Wno-logical-op-parentheses", "-Wno-bitwise-op-parentheses")
_CALLS = ("ppoll", "recvmmsg", "sendmmsg", "readv", "writev", "clock_gettime", "clock_nanosleep")
# Making and looking through what is this large is most of an input's time.
_SMALLER = (
    ("state/api.h", "GL_GROUPS = 65536", "GL_GROUPS = 64"),
    ("state/api.h", "GL_SESSIONS = 32768", "GL_SESSIONS = 64"),
    ("wire/messages.h", "GL_BATCH = 128", "GL_BATCH = 16"),
)
_LONGEST = 4096  # bytes of an input
_SEEDS = 6  # inputs to begin with, for each program and way to run it
_EXAMPLES = """examples:
  python -m tests.fuzz.fuzz --seconds 600 --jobs 2
  python -m tests.fuzz.fuzz out/fuzz/crash-0123456789
"""


class FuzzError(Exception):
    """The machine lacks something, or the fuzzer can't be built."""


def compiler() -> str | None:
    """A clang that has libFuzzer; None if there is none."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "none.c")
        source.write_text("int LLVMFuzzerTestOneInput(void) { return 0; }\n")
        for name in COMPILERS:
            found = shutil.which(name)
            command = [str(found), f"-fsanitize=fuzzer,{_SANITIZE}", "-o", f"{folder}/none", str(source)]
            if found and not subprocess.run(command, capture_output=True, check=False).returncode:
                return found
    return None


def build(folder: Path = OUT, optimize: str = "-O1") -> Path:
    """The fuzzer, built anew if anything that it is made of has changed. `optimize`: clang's. Raises FuzzError."""
    clang = compiler()
    if clang is None:
        raise FuzzError("no clang with libFuzzer: apt-get install clang-14 libclang-rt-14-dev")
    programs = [load(path.read_bytes()) for path in PROGRAMS]
    traced = [path.stem in TRACED for path in PROGRAMS]
    parts: list[tuple[str, str, tuple[str, ...]]] = [("description", describe(programs, traced), ())]
    for number, program in enumerate(programs):
        parts.append((f"program{number}", generate(program), (f"-Dgl_program=gl_program_{number}", *_QUIET)))
        if traced[number]:
            text = generate(program, traced=True)
            parts.append((f"traced{number}", text, (f"-Dgl_program=gl_traced_{number}", *_QUIET)))
    renamed = tuple(f"-D{name}=fuzz_{name}" for name in _CALLS)
    for path in sorted(RUNTIME.rglob("*.c")):
        parts.append(("_".join(path.relative_to(RUNTIME).with_suffix("").parts), path.read_text(), renamed))
    parts += [(f"fuzz_{path.stem}", path.read_text(), ()) for path in sorted(HERE.glob("*.c"))]
    objects, include = folder / "objects", folder / "include"
    for made in (objects, include):
        made.mkdir(parents=True, exist_ok=True)
    headers = {
        str(path.relative_to(root)): path.read_text() for root in (RUNTIME, HERE) for path in sorted(root.rglob("*.h"))
    }
    for name, before, after in _SMALLER:
        if before not in headers[name]:
            raise FuzzError(f"{name} has no {before!r}, which the fuzzer makes smaller")
        headers[name] = headers[name].replace(before, after)
    for name, text in headers.items():
        (include / name).parent.mkdir(exist_ok=True)
        (include / name).write_text(text)

    def compiled(part: tuple[str, str, tuple[str, ...]]) -> Path:
        name, text, flags = part
        all_flags = (*_FLAGS, optimize, f"-fsanitize=fuzzer-no-link,{_SANITIZE}", f"-I{include}", *flags)
        digest = hashlib.sha256("\0".join((clang, *headers.values(), text, *all_flags)).encode()).hexdigest()[:24]
        result = objects / f"{name}-{digest}.o"
        if not result.exists():
            for old in objects.glob(f"{name}-*"):
                old.unlink()
            source = objects / f"{name}.c"
            source.write_text(text)
            _run(clang, *all_flags, "-c", "-o", str(result), str(source))
        return result

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        files = list(pool.map(compiled, parts))
    fuzzer = folder / "fuzzer"
    _run(clang, f"-fsanitize=fuzzer,{_SANITIZE}", "-o", str(fuzzer), *map(str, files))
    return fuzzer


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FuzzError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")


def write_seeds(folder: Path) -> None:
    """Inputs to begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(PROGRAMS):
        for place, content in enumerate(inputs(number, path.stem, _SEEDS)):
            (folder / f"{path.stem}-{place}").write_bytes(content)


def fuzz(fuzzer: Path, corpus: Path, *options: str) -> subprocess.Popen[bytes]:
    """Runs the fuzzer; a corpus grows by what reaches something new."""
    options = (f"-max_len={_LONGEST}", "-timeout=20", "-use_value_profile=1", "-print_final_stats=0", *options)
    environment = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.Popen([str(fuzzer), *options, str(corpus)], env=environment)


def main() -> int:
    """Fuzzes for a time; the exit code: 0, 1 (an input failed), 2 (usage, or the machine)."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=120, help="(default 120)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("input", nargs="*", help="files to run once, instead")
    options = parser.parse_args()
    try:
        fuzzer = build()
    except FuzzError as error:
        print(f"fuzz: error: {error}", file=sys.stderr)
        return 2
    if options.input:
        return int(subprocess.run([str(fuzzer), *options.input], check=False).returncode != 0)
    corpus = OUT / "corpus"
    write_seeds(corpus)
    words = (f"-max_total_time={options.seconds}", "-reload=1", f"-artifact_prefix={OUT}/")
    jobs = [fuzz(fuzzer, corpus, *words) for _ in range(options.jobs)]
    codes = [job.wait() for job in jobs]
    failed = any(codes)
    print(f"fuzz: {len(list(corpus.iterdir()))} inputs kept; {'one FAILED, see above' if failed else 'none failed'}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
