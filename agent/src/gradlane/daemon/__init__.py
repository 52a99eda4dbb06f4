# SPDX-License-Identifier: Apache-2.0
"""The agent: one daemon per host, with its jobs and their local processes."""
