# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the agent: all-reduce against Gloo's, training with and without the barrier."""
