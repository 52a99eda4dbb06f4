# SPDX-License-Identifier: Apache-2.0
"""Gradlane: distributed training that tells the network what each gradient packet is worth."""

from gradlane.errors import AgentError, GradlaneError

__all__ = ["AgentError", "GradlaneError"]
