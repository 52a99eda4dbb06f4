# SPDX-License-Identifier: Apache-2.0
"""Random but valid v1model programs, from a seed, and what gradlane-switch and BMv2 make of them.

python -m tests.differential.random_programs 1 200          compares the programs of seeds 1 to 200
python -m tests.differential.random_programs 7 --write      puts the program of seed 7 into the corpus

It needs p4c-bm2-ss and simple_switch_grpc on PATH. A program that p4c refuses counts as a failure of this generator.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.differential import corpus
from tests.differential.random_writer import Writer
from tests.differential.targets import run_bmv2, run_gradlane
from tests.differential.test_differential import differences

_FRAMES = 300


def compare(seed: int, folder: Path) -> list[str]:
    """What the two switches disagree on. Raises CalledProcessError when p4c refuses the program."""
    name = f"random_{seed}"
    (folder / f"{name}.p4").write_text(Writer(seed).source())
    (folder / f"{name}.toml").write_text(f"packets = {_FRAMES}\n")
    made = ["-o", f"{name}.json", "--p4runtime-files", f"{name}.p4info.txtpb"]
    command = ["p4c-bm2-ss", "--arch", "v1model", "-I", str(corpus.SOURCES), *made, f"{name}.p4"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    program = _Elsewhere(name, folder)
    return differences(program, run_bmv2(program, "simple_switch_grpc", folder), run_gradlane(program))


def _shown(found: list[str]) -> str:
    """What differs, without the frames that entered."""
    lines = [line for text in found for line in text.splitlines() if not line.startswith("  entered")]
    return "\n".join(lines[:6])


def _errors(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line or "Bug" in line]
    return "; ".join(lines) or text


@dataclass(frozen=True)
class _Elsewhere(corpus.Program):
    """A program whose files are in a folder of their own."""

    folder: Path

    @property
    def json_path(self) -> Path:
        return self.folder / f"{self.name}.json"

    @property
    def p4info_path(self) -> Path:
        return self.folder / f"{self.name}.p4info.txtpb"

    @property
    def settings_path(self) -> Path:
        return self.folder / f"{self.name}.toml"


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the last seed; without it, the first alone")
    parser.add_argument("--write", action="store_true", help="add the programs to the corpus instead of comparing them")
    parser.add_argument("--keep", type=Path, help="where the files of programs that disagree go")
    arguments = parser.parse_args()
    failed: list[int] = []
    seeds = range(arguments.first, (arguments.last or arguments.first) + 1)
    for seed in seeds:
        if arguments.write:
            (corpus.SOURCES / f"random_{seed}.p4").write_text(Writer(seed).source())
            (corpus.SOURCES / f"random_{seed}.toml").write_text(
                # REUSE-IgnoreStart
                f"# SPDX-License-Identifier: Apache-2.0\npackets = {_FRAMES}\n"
                # REUSE-IgnoreEnd
            )
            continue
        with tempfile.TemporaryDirectory(prefix="gradlane-random-") as folder:
            try:
                found = compare(seed, Path(folder))
            except subprocess.CalledProcessError as error:
                found = [f"p4c: {_errors(error.stderr)}"]
            except AssertionError as error:
                found = [f"BMv2: {error}"]
            if found:
                failed.append(seed)
                if arguments.keep is not None:
                    Path(folder).rename(arguments.keep / str(seed))
                    Path(folder).mkdir()
        print(f"seed {seed}: {_shown(found) if found else 'agree'}", flush=True)
    if failed:
        print(f"random_programs.py: {len(failed)} of {len(seeds)} seeds failed: {failed}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
