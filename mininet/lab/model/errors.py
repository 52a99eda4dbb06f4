# SPDX-License-Identifier: Apache-2.0
"""The errors that end a command of the laboratory or a benchmark, each with the command's exit status."""


class LabError(Exception):
    """Ends a command; the message is for its user. `exit_status` is what the command returns."""

    exit_status = 1


class UsageError(LabError):
    """Nothing ran: what was asked for is not possible, or the machine lacks something. The message says what to do."""

    exit_status = 2


class PreconditionError(UsageError):
    """The machine lacks something; the message says what, and how to mend it."""


class TopologyError(UsageError):
    """No such topology, or no such switch in it; the message names what would be right."""


class ScenarioError(UsageError):
    """A setting that no fabric can have; the message names it and its range."""


class ExperimentError(LabError):
    """Something failed while it ran; the message names the culprit."""


class FabricError(ExperimentError):
    """The network can't be built; the message names the command and what it said."""


class ProcessError(ExperimentError):
    """A process died, or did not become ready; the message names it, how it ended and its last words."""


class ControlError(ExperimentError):
    """The controller or a switch refused or did not answer; the message names which, and why."""


class RecordsError(ExperimentError):
    """The records lack something; the message names the file."""


class ArmError(ExperimentError):
    """An arm failed; the message names the culprit, the arm and the step."""
