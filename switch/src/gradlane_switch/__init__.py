# SPDX-License-Identifier: Apache-2.0
"""A software switch for v1model P4 programs."""

from typing import TYPE_CHECKING, Any

from gradlane_switch.errors import BuildError, EntityError, PortError, ProgramError, SwitchError

if TYPE_CHECKING:
    from gradlane_switch.switch import Switch


def __getattr__(name: str) -> Any:
    # The command has to handle signals before all that is imported, which takes half a second.
    if name == "Switch":
        from gradlane_switch.switch import Switch

        return Switch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["BuildError", "EntityError", "PortError", "ProgramError", "Switch", "SwitchError"]
