# SPDX-License-Identifier: Apache-2.0
"""What is there: namespaces, interfaces, switches, processes, the controller."""
