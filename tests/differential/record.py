# SPDX-License-Identifier: Apache-2.0
"""Runs the corpus on BMv2 and writes down what it made of it, for the tests to compare with where BMv2 is missing.

python -m tests.differential.record                 records what is missing or stale
python -m tests.differential.record --all           records everything anew
python -m tests.differential.record varbit union    records these
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.differential import recording
from tests.differential.members import member, names
from tests.differential.targets import run_bmv2


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="programs; without any: those whose record is missing or stale")
    parser.add_argument("--all", action="store_true", help="every program")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names()):
        parser.error(f"no such program: {', '.join(sorted(unknown))}")
    missing = [name for name in ("simple_switch_grpc", "simple_switch_CLI") if shutil.which(name) is None]
    if missing:
        print(f"record.py: {' and '.join(missing)} (BMv2 with P4Runtime and Thrift) must be on PATH", file=sys.stderr)
        return 1
    wanted = arguments.names or [name for name in names() if arguments.all or _stale(name)]
    failed: list[str] = []
    for number, name in enumerate(wanted, 1):
        program = member(name)
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gradlane-differential-") as folder:
            try:
                outcome = run_bmv2(program, "simple_switch_grpc", Path(folder))
            except AssertionError as error:
                failed.append(name)
                print(f"[{number}/{len(wanted)}] {name}: {error}", file=sys.stderr, flush=True)
                continue
        recording.save(program, outcome)
        left = sum(map(len, outcome.windows))
        size = recording.path_of(program).stat().st_size
        print(
            f"[{number}/{len(wanted)}] {name}: {len(program.frames)} frames in, {left} out, "
            f"{time.monotonic() - start:.1f} s, {size} bytes",
            flush=True,
        )
    for path in recording.RECORDS.glob("*.bin"):
        if path.stem not in names():
            path.unlink()
    print(f"{sum(path.stat().st_size for path in recording.RECORDS.glob('*.bin'))} bytes in all")
    if failed:
        print(f"record.py: not recorded: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _stale(name: str) -> bool:
    try:
        recording.load(member(name))
    except recording.RecordError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
