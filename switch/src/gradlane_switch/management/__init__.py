# SPDX-License-Identifier: Apache-2.0
"""How a running switch is managed: its admin socket and Prometheus metrics."""
