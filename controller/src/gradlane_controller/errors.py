# SPDX-License-Identifier: Apache-2.0
"""Errors about the switch and the pipeline; those about files are in `gradlane.toml_file`."""

from gradlane import GradlaneError


class PipelineError(GradlaneError):
    """p4c's output is missing or can't be read; the message names the folder and how to make it."""


class SwitchError(GradlaneError):
    """The switch can't be reached, is lost, or refused something; the message names its address."""


class SwitchLostError(SwitchError):
    """The session with the switch ended meanwhile, or there is none."""


class BusyError(SwitchError):
    """Another change waits for a switch that may hang; try again. The message names it."""


class DrainError(GradlaneError):
    """A switch can't be drained; the message says what would be cut off."""


class UnknownSwitchError(GradlaneError):
    """There is no switch of that name."""


class NotLeadingError(SwitchLostError):
    """Another controller leads, or none: this one writes nothing."""


class UnknownJobError(GradlaneError):
    """There is no job of that name."""


class StoreError(GradlaneError):
    """The store can't be used, or refuses something; the message names it (without its password) and what is wrong.

    `unsure`: it may have done what it was asked, but has not said so.
    """

    def __init__(self, message: str, *, unsure: bool = False) -> None:
        super().__init__(message)
        self.unsure = unsure


class ChangedMeanwhileError(GradlaneError):
    """A job has another version than the one that was to be changed."""
