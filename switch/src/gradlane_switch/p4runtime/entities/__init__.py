# SPDX-License-Identifier: Apache-2.0
"""P4Runtime entities: each kind as it is written and read."""
