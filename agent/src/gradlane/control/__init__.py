# SPDX-License-Identifier: Apache-2.0
"""The control connections between agents: who they are, how they meet, whether they live."""
