# SPDX-License-Identifier: Apache-2.0
"""Coverage-guided fuzzing of C code under ASan and UBSan: the switch's, and the agent's core.

libFuzzer makes inputs up from those that reached something new. What an input is: switch/run.c, core/run.c. What
reached something new is kept in out/fuzz/NAME/corpus. An input that fails is kept in out/fuzz/NAME; give its name to
this script to run it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.compiling import FuzzError
from tests.fuzz.core import core_fuzzer
from tests.fuzz.switch import switch_fuzzer
from tests.support.paths import ROOT

OUT = ROOT / "out" / "fuzz"
_EXAMPLES = """examples:
  python -m tests.fuzz.fuzz --seconds 600 --jobs 2
  python -m tests.fuzz.fuzz --of core out/fuzz/core/crash-0123456789
"""


@dataclass(frozen=True)
class Target:
    """What is fuzzed; `longest`: bytes of an input."""

    build: Callable[[Path, str], Path]
    seeds: Callable[[], Iterator[tuple[str, bytes]]]
    longest: int


TARGETS = {
    "switch": Target(switch_fuzzer.build, switch_fuzzer.seeds, switch_fuzzer.LONGEST),
    "core": Target(core_fuzzer.build, core_fuzzer.seeds, core_fuzzer.LONGEST),
}


def write_seeds(target: Target, folder: Path) -> None:
    """Inputs to begin with."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in target.seeds():
        (folder / name).write_bytes(content)


def fuzz(target: Target, fuzzer: Path, corpus: Path, *options: str) -> subprocess.Popen[bytes]:
    """Runs the fuzzer; a corpus grows by what reaches something new."""
    options = (f"-max_len={target.longest}", "-timeout=20", "-use_value_profile=1", "-print_final_stats=0", *options)
    environment = os.environ | {"UBSAN_OPTIONS": "print_stacktrace=1"}
    return subprocess.Popen([str(fuzzer), *options, str(corpus)], env=environment)


def _fuzz_for(name: str, seconds: int, jobs: int) -> bool:
    """Whether no input failed. Raises FuzzError."""
    target, folder = TARGETS[name], OUT / name
    fuzzer = target.build(folder, "-O1")
    corpus = folder / "corpus"
    write_seeds(target, corpus)
    words = (f"-max_total_time={seconds}", "-reload=1", f"-artifact_prefix={folder}/")
    codes = [job.wait() for job in [fuzz(target, fuzzer, corpus, *words) for _ in range(jobs)]]
    failed = any(codes)
    kept = len(list(corpus.iterdir()))
    print(f"fuzz: {name}: {kept} inputs kept; {'one FAILED, see above' if failed else 'none failed'}", flush=True)
    return not failed


def main() -> int:
    """Fuzzes for a time; the exit code: 0, 1 (an input failed), 2 (usage, or the machine)."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--of", choices=TARGETS, help="(default: one after the other)")
    parser.add_argument("--seconds", type=int, default=120, help="of each (default 120)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one per core)")
    parser.add_argument("input", nargs="*", help="files to run once, instead; needs --of")
    options = parser.parse_args()
    if options.input and not options.of:
        parser.error("--of must say whose inputs these are")
    names = [options.of] if options.of else list(TARGETS)
    try:
        if options.input:
            fuzzer = TARGETS[options.of].build(OUT / options.of, "-O1")
            return int(subprocess.run([str(fuzzer), *options.input], check=False).returncode != 0)
        went_well = [_fuzz_for(name, options.seconds, options.jobs) for name in names]
        return int(not all(went_well))
    except FuzzError as error:
        print(f"fuzz: error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
