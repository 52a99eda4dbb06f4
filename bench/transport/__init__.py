# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of the transport against TCP: tails, fairness."""
