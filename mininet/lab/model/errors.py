# SPDX-License-Identifier: Apache-2.0
"""The errors that end a run."""


class ExperimentError(Exception):
    """Something failed on the way; the message names the culprit."""


class FabricError(ExperimentError):
    """The fabric can't be built; the message names the command and what it said."""


class ProcessError(ExperimentError):
    """A process died, or did not become ready; the message names it, how it ended and its last words."""


class ControlError(ExperimentError):
    """The controller or the switch refused or did not answer; the message names which, and why."""


class RecordsError(ExperimentError):
    """The records do not tell what they should; the message names the file."""


class ArmError(ExperimentError):
    """An arm failed; the message names the culprit, the arm and the step."""
