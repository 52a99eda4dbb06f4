# SPDX-License-Identifier: Apache-2.0
"""How a running switch is managed: its admin socket, Prometheus metrics, and systemd."""
