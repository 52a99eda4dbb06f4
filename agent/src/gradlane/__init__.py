# SPDX-License-Identifier: Apache-2.0
"""Gradlane: distributed training that tells the network what each gradient packet is worth."""

from typing import TYPE_CHECKING, Any

from gradlane.errors import AgentError, GradlaneError, PeerLost

if TYPE_CHECKING:
    from gradlane.client.communicator import Communicator


def __getattr__(name: str) -> Any:
    # The controller imports the package for the job file and needs neither numpy nor the C core.
    if name == "Communicator":
        from gradlane.client.communicator import Communicator

        return Communicator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["AgentError", "Communicator", "GradlaneError", "PeerLost"]
