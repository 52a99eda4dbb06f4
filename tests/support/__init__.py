# SPDX-License-Identifier: Apache-2.0
"""What tests of several packages share: agents, networks, packets, ports. Nothing here is a test."""
