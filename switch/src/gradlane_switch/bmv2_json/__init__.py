# SPDX-License-Identifier: Apache-2.0
"""How a program is read from the JSON that p4c writes for BMv2."""
