# SPDX-License-Identifier: Apache-2.0
"""Runs a command where nothing of another run on this machine can meet it."""

# A network, a /run and a /sys of its own.
_OWN = 'ip link set lo up; mount -t tmpfs tmpfs /run; mount -t sysfs sysfs /sys; exec "$@"'
ISOLATED = ("unshare", "--net", "--mount", "sh", "-ec", _OWN, "sh")
