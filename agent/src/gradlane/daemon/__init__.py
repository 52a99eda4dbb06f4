# SPDX-License-Identifier: Apache-2.0
"""The agent: one daemon per host, with sessions of jobs and its clients."""
