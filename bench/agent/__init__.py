# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the agent: collectives beside Gloo's."""
