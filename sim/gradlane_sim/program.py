# SPDX-License-Identifier: Apache-2.0
"""gradlane-sim, the program that simulates: a process for each run, JSON in and out."""

import hashlib
import json
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from gradlane_sim.errors import SimulationError
from gradlane_sim.partners import Deciders
from gradlane_sim.specification import Json

DEFAULT = Path(__file__).parents[1] / "build" / "gradlane-sim"
_ERROR_CHARACTERS = 2000
# How a line begins in which a worker asks for its group.
_ASK = '{"ask":'
# A line of progress: what has been simulated, s, and in which real time.
Progress: TypeAlias = Callable[[float, float], None]


@dataclass
class Program:
    """Where it is. It may run several times at once; `stop` ends all of these."""

    path: Path = DEFAULT
    _running: set["subprocess.Popen[str]"] = field(default_factory=set[Any], init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _stopped: bool = field(default=False, init=False)

    @cached_property
    def digest(self) -> str:
        """Of its bytes. Raises SimulationError if it has not been built."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest()
        except OSError as problem:
            raise SimulationError(f"{self.path} can't be read ({problem.strerror}): `make sim` builds it") from None

    @cached_property
    def rivals_digest(self) -> str:
        """Of what it is made of but for the engine, as its build wrote it down; of the whole where none has."""
        try:
            return self.path.with_name("rivals.sha256").read_text()
        except OSError:
            return self.digest

    def run(self, document: Json, progress: Progress) -> Json:
        """Simulates. Raises SimulationError."""
        with self._lock:
            if self._stopped:
                raise SimulationError("stopped")
            process = subprocess.Popen(
                [self.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self._running.add(process)
        try:
            return self._talk(process, json.dumps(document), Deciders(document), progress)
        finally:
            process.kill()
            process.wait()
            with self._lock:
                self._running.discard(process)

    def _talk(self, process: "subprocess.Popen[str]", text: str, deciders: Deciders, progress: Progress) -> Json:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        said: list[str] = []

        def listen(lines: Any) -> None:
            for line in lines:
                try:
                    row = json.loads(line)
                    progress(row["simulated"], row["wall"])
                except (ValueError, KeyError, TypeError):
                    said.append(line)

        listener = threading.Thread(target=listen, args=(process.stderr,), daemon=True)
        listener.start()
        output = ""
        try:
            process.stdin.write(text)
            process.stdin.flush()
            while deciders.needed and (line := process.stdout.readline()):
                if not line.startswith(_ASK):
                    output = line
                    break
                print(deciders.answer(json.loads(line)["ask"]), file=process.stdin, flush=True)
            process.stdin.close()
        except BrokenPipeError:
            pass  # its error is read below
        output += process.stdout.read()
        status = process.wait()
        listener.join()
        if status:
            raise SimulationError(f"{self.path.name} ended with {status}: {_error(''.join(said))}")
        try:
            return json.loads(output)
        except ValueError:
            raise SimulationError(f"{self.path.name} wrote no result") from None

    def stop(self) -> None:
        """Ends what runs; `run` raises SimulationError then, and later."""
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()


def _error(said: str) -> str:
    try:
        return str(json.loads(said)["error"])
    except (ValueError, KeyError, TypeError):
        return said.strip()[-_ERROR_CHARACTERS:] or "it said nothing"
