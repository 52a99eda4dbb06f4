# SPDX-License-Identifier: Apache-2.0
"""What runs: namespaces, interfaces, switches, processes, the controller."""
