# SPDX-License-Identifier: Apache-2.0
"""What the switches should hold: the program, the jobs and the entries that follow from them."""
