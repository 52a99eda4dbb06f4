# SPDX-License-Identifier: Apache-2.0
"""Errors about the switch and the pipeline; those about files are in `gradlane.toml_file`."""

from gradlane import GradlaneError


class PipelineError(GradlaneError):
    """p4c's output is missing or can't be read; the message names the folder and how to make it."""


class SwitchError(GradlaneError):
    """The switch can't be reached, is lost, or refused something; the message names its address."""


class SwitchLostError(SwitchError):
    """The session with the switch ended meanwhile, or there is none."""


class DrainError(GradlaneError):
    """A switch can't be drained; the message says what would be cut off."""


class UnknownSwitchError(GradlaneError):
    """There is no switch of that name."""


class UnknownJobError(GradlaneError):
    """There is no job of that name."""
