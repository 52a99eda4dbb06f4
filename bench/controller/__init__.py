# SPDX-License-Identifier: Apache-2.0
"""The controller against fabrics of many switches, which are simulated."""
