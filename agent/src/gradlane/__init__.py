# SPDX-License-Identifier: Apache-2.0
"""Gradlane: distributed training that tells the network what each gradient packet is worth."""

from typing import TYPE_CHECKING, Any

from gradlane.client import in_process as _in_process
from gradlane.errors import AgentError, GradlaneError, PeerLost

if TYPE_CHECKING:
    from pathlib import Path

    from gradlane.client.communicator import Communicator
    from gradlane.toml_file import Address


def _agent(file: "Path | None", address: "Address") -> _in_process.Agent:
    from gradlane.daemon.in_process import InProcess

    return InProcess(file, address)


def _address(file: "Path") -> "Address | None":
    from gradlane.daemon.config import load

    return next(iter(load(file).addresses), None)


_in_process.makers.append(_in_process.Makers(_agent, _address))  # the client, which is below the daemon, calls them


def __getattr__(name: str) -> Any:
    # The controller imports the package for the job file and needs neither numpy nor the C core.
    if name == "Communicator":
        from gradlane.client.communicator import Communicator

        return Communicator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AgentError", "Communicator", "GradlaneError", "PeerLost"]
