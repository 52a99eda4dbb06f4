# SPDX-License-Identifier: Apache-2.0
"""BMv2 between hosts on wires. Run as a program in the switch's namespace, it is the controller of one there."""

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from finsy.proto import p4r
from google.protobuf import text_format

from bench.harness.switches import Client, Pipeline
from bench.harness.wires import Wires
from bench.harness.worker import Worker
from lab.model.preconditions import find_program


@contextmanager
def running(
    wires: Wires, folder: Path, ports: int, pipeline: Pipeline, updates: Iterable[Any], before: Sequence[str] = ()
) -> Generator[Worker, None, None]:
    """A simple_switch_grpc with that program and those p4.v1.Update messages; its ports 1.. are the wires'.

    `before`: words in front of its command. Raises PreconditionError, ProcessError, FabricError.
    """
    address = f"127.0.0.1:{50_000 + os.getpid() % 10_000}"
    command = ["ip", "netns", "exec", wires.switch, *before, find_program("simple_switch_grpc")]
    command += ["--no-p4", "--log-level", "off", "--device-id", "1"]
    for port in range(1, ports + 1):
        command += ["-i", f"{port}@switch-{port}"]
    entries = folder / "bmv2.txtpb"
    entries.write_text(text_format.MessageToString(p4r.WriteRequest(updates=updates)))
    with Worker("bmv2", [*command, "--", "--grpc-server-addr", address], asked=False, logs=True) as process:
        # Its server is in the switch's namespace, so its controller goes there.
        control = [
            sys.executable,
            "-m",
            "bench.switch.bmv2",
            address,
            str(pipeline.folder),
            pipeline.name,
            str(entries),
        ]
        wires.run(wires.switch, *control)
        yield process


def main() -> None:
    """Arguments: ADDRESS of the P4Runtime server, folder and name of the program, a file with a p4.v1.WriteRequest."""
    address, folder, name, entries = sys.argv[1:]
    request = text_format.Parse(Path(entries).read_text(), p4r.WriteRequest())
    with Client(address) as client:
        client.set_pipeline(Pipeline(Path(folder), name))
        client.write(p4r.Update.INSERT, [update.entity for update in request.updates])


if __name__ == "__main__":
    main()
