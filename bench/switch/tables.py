# SPDX-License-Identifier: Apache-2.0
"""What a packet costs with full tables and with empty ones, in one process, alternately, on one core.

A frame passes the whole program: parser, table, action, checksum, deparser; there are no ports. `hit` keys are drawn
from the entries, `random` ones are uniform and hardly ever match. There are 65,536 of each, so that caches help little.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from cffi import FFI

from bench.switch.table_cases import BUILD, CASES, Wanted, entity, frame, hit_key, random_key
from gradlane_switch import Switch
from gradlane_switch.native.build import RUNTIME
from gradlane_switch.native.ffi import ffi

_FRAMES = 65_536
_EXAMPLES = """examples:
  python -m bench.switch.tables
  python -m bench.switch.tables --cases lpm_ipv4,acl --rounds 25 --json > tables.json
"""


@dataclass(frozen=True)
class Result:
    """Medians in ns per packet. `ratio` is full to empty, `wire_ratio` the same with what I/O costs added to both."""

    case: str
    keys: str
    entries: int
    empty_ns: float
    full_ns: float
    lookup_ns: float
    ratio: float
    wire_ratio: float


# Measuring


class Load:
    """The C loop that puts frames through a program."""

    def __init__(self, folder: Path) -> None:
        library = folder / "table_load.so"
        source = Path(__file__).with_name("table_load.c")
        flags = ["-std=gnu11", "-Werror", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", f"-I{RUNTIME}"]
        subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
        self._ffi: Any = FFI()
        self._ffi.cdef("uint64_t table_load(void *, void *, uint32_t, const uint8_t *, uint32_t, uint32_t);")
        self._library = self._ffi.dlopen(str(library))

    def run(self, switch: Switch, port: int, frames: list[bytes]) -> float:
        """ns per frame."""
        pipeline, length = switch.pipeline, len(frames[0])
        parts = (pipeline.loaded.process, pipeline.state.handle)
        pointers = [self._ffi.cast("void *", int(ffi.cast("uintptr_t", item))) for item in parts]
        return self._library.table_load(*pointers, port, b"".join(frames), length, len(frames)) / len(frames)


def measure(load: Load, name: str, rounds: int, io: float, seed: int) -> list[Result]:
    """Fills the table of a case, and measures it beside an empty one."""
    case, random = CASES[name], Random(seed)
    full, empty = (Switch.load(BUILD / "tables.json", BUILD / "tables.p4info.txtpb") for _ in range(2))
    info = full.pipeline.info
    ids = {item.preamble.alias: item.preamble.id for item in [*info.tables, *info.actions]}
    entries: dict[tuple[tuple[str, tuple[int, int]], ...], Wanted] = {}
    while len(entries) < case.count:
        wanted = case.entry(random)
        entries[tuple(sorted(wanted.items()))] = wanted
    priorities = random.sample(range(1, 1 << 24), case.count)
    for priority, wanted in zip(priorities, entries.values(), strict=True):
        full.insert(entity(ids, case, wanted, priority))
    known = list(entries.values())
    results: list[Result] = []
    for keys in ("hit", "random"):
        drawn = (
            hit_key(random, case, random.choice(known)) if keys == "hit" else random_key(random) for _ in range(_FRAMES)
        )
        frames = [frame(case, key) for key in drawn]
        times: dict[str, list[float]] = {"empty": [], "full": []}
        for _ in range(rounds + 1):
            for kind, switch in (("empty", empty), ("full", full)):
                times[kind].append(load.run(switch, case.port, frames))
        # The first round warms up.
        before, after = (sorted(times[kind][1:])[rounds // 2] for kind in ("empty", "full"))
        figures = (before, after, after - before, after / before, (after + io) / (before + io))
        results.append(Result(name, keys, case.count, *(round(value, 2) for value in figures)))
        print(_line(results[-1]), file=sys.stderr)
    return results


_COLUMNS = (
    f"{'case':14} {'keys':7} {'entries':>8} {'empty ns':>9} {'full ns':>8} {'lookup ns':>10} {'ratio':>6} {'wire':>6}"
)


def _line(item: Result) -> str:
    return (
        f"{item.case:14} {item.keys:7} {item.entries:8} {item.empty_ns:9.1f} {item.full_ns:8.1f} "
        f"{item.lookup_ns:10.1f} {item.ratio:6.2f} {item.wire_ratio:6.2f}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the benchmark; the exit code: 0, or 2 for bad usage."""
    options = _parser().parse_args(arguments)
    for name in options.cases:
        if name not in CASES:
            print(f"tables: error: {name!r} is not a case: there are {', '.join(CASES)}", file=sys.stderr)
            return 2
    os.sched_setaffinity(0, {options.core})
    print(_COLUMNS, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        load = Load(Path(folder))
        results = [
            item for name in options.cases for item in measure(load, name, options.rounds, options.io, options.seed)
        ]
    print(json.dumps([asdict(item) for item in results], indent=1) if options.json else _table(results))
    return 0


def _table(results: list[Result]) -> str:
    return "\n".join([_COLUMNS, *map(_line, results)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases",
        type=lambda text: text.split(","),
        default=list(CASES),
        metavar="NAMES",
        help=f"of {', '.join(CASES)} (default all)",
    )
    parser.add_argument("--rounds", type=int, default=9, help="(default 9)")
    parser.add_argument("--core", type=int, default=0, help="(default 0)")
    parser.add_argument(
        "--io", type=float, default=2000.0, metavar="NS", help="what ports cost per packet, for the last column (2000)"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="medians as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
