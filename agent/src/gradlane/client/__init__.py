# SPDX-License-Identifier: Apache-2.0
"""The training process' side of the agent."""
