# SPDX-License-Identifier: Apache-2.0
"""A software switch for v1model P4 programs."""

from gradlane_switch.errors import BuildError, EntityError, PortError, ProgramError, SwitchError
from gradlane_switch.switch import Switch

__all__ = ["BuildError", "EntityError", "PortError", "ProgramError", "Switch", "SwitchError"]
