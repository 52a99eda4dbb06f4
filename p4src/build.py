#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles P4 programs with p4c, each tree's into its build folder, beside a digest of the sources they were made from.

The trees are the project's own program, the corpus of the differential test, and those of the benchmarks. The output is
committed, so that nobody needs p4c to run Gradlane or its tests; a test fails when it is stale.
"""

import hashlib
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Tree:
    """Programs that are compiled together. `sources` and `programs` are relative to `root`, as p4c sees them.

    A change of a source that is no program counts for every program: it may be included. `profiles` are macros: each
    program is compiled once more with each of them defined.
    """

    root: Path
    output: Path
    sources: tuple[str, ...]
    programs: tuple[str, ...]
    profiles: tuple[str, ...] = ()

    @property
    def digest_file(self) -> Path:
        """Where the digest is kept."""
        return self.output / "sources.sha256"

    def sources_digest(self) -> str:
        """One line per source file, `sha256sum` format."""
        return "".join(
            f"{hashlib.sha256((self.root / source).read_bytes()).hexdigest()}  {source}\n" for source in self.sources
        )

    def stale(self) -> list[str]:
        """The programs whose output is missing or older than their sources."""
        known = set(self.digest_file.read_text().splitlines()) if self.digest_file.exists() else set[str]()
        lines = self.sources_digest().splitlines()
        changed = {line.split("  ", 1)[1] for line in lines if line not in known}
        if changed - set(self.programs):
            return list(self.programs)
        return [name for name in self.programs if name in changed or not all(p.exists() for p in self.outputs(name))]

    def outputs(self, program: str) -> list[Path]:
        """The BMv2 JSON and the P4Info (text format) of a program, and those of each of its profiles."""
        return [path for profile in (None, *self.profiles) for path in self._pair(program, profile)]

    def _pair(self, program: str, profile: str | None) -> tuple[Path, Path]:
        stem = Path(program).stem + (f"-{profile.lower()}" if profile else "")
        return self.output / f"{stem}.json", self.output / f"{stem}.p4info.txtpb"

    def build(self, compiler: str) -> int:
        """Compiles what is stale and removes what is left of programs that are gone. Returns p4c's exit code."""
        self.output.mkdir(parents=True, exist_ok=True)
        stale = self.stale()
        for number, program in enumerate(stale, 1):
            print(f"[{number}/{len(stale)}] {program}")
            for profile in (None, *self.profiles):
                document, info = (path.relative_to(self.root).as_posix() for path in self._pair(program, profile))
                command = [compiler, "--arch", "v1model", "--p4runtime-files", info, "-o", document, program]
                command += [f"-D{profile}"] if profile else []
                # Run inside the tree, so that the paths in the output do not depend on the machine.
                if code := subprocess.run(command, cwd=self.root, check=False).returncode:
                    return code
        wanted = {path for program in self.programs for path in self.outputs(program)}
        for path in set(self.output.iterdir()) - wanted - {self.digest_file}:
            path.unlink()
        self.digest_file.write_text(self.sources_digest())
        print(f"{self.output.relative_to(HERE.parent)} is up to date")
        return 0


def _files(root: Path, *patterns: str) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(root).as_posix() for pattern in patterns for path in root.glob(pattern)))


CORPUS_ROOT = HERE.parent / "tests" / "differential"
GRADLANE = Tree(
    HERE,
    HERE / "build" / "v1model",
    _files(HERE, "shared/*.p4", "v1model/*.p4"),
    ("v1model/gradlane.p4",),
    profiles=("AGGREGATION",),
)
CORPUS = Tree(
    CORPUS_ROOT, CORPUS_ROOT / "build", _files(CORPUS_ROOT, "programs/**/*.p4"), _files(CORPUS_ROOT, "programs/*.p4")
)
BENCH = [
    Tree(root, root / "build", _files(root, "*.p4"), _files(root, "*.p4"))
    for root in (HERE.parent / "bench" / "switch", HERE.parent / "bench" / "training")
]


def main() -> int:
    """Rebuilds what is stale. Returns the exit code."""
    compiler = shutil.which("p4c-bm2-ss")
    if compiler is None:
        print(
            "make p4: p4c-bm2-ss is not on PATH. Build p4c (https://github.com/p4lang/p4c) with its BMv2 backend and "
            "put it on PATH; to run Gradlane without changing the P4 program you need no p4c.",
            file=sys.stderr,
        )
        return 1
    return next((code for tree in (GRADLANE, CORPUS, *BENCH) if (code := tree.build(compiler))), 0)


if __name__ == "__main__":
    sys.exit(main())
