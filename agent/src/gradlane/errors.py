# SPDX-License-Identifier: Apache-2.0
"""The errors that users of the agent see."""


class GradlaneError(Exception):
    """Base of every error that this package raises on purpose."""


class AgentError(GradlaneError):
    """The agent refused or lost something; the message names the culprit (rank, address, file or key)."""
