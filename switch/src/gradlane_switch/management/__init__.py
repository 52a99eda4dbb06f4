# SPDX-License-Identifier: Apache-2.0
"""The running switch from outside: its admin socket, metrics, and what systemd hears."""
