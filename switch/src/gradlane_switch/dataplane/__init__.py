# SPDX-License-Identifier: Apache-2.0
"""Ports, forwarding between them, and tracing of packets."""
