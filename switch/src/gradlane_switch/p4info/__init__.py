# SPDX-License-Identifier: Apache-2.0
"""P4Info, and values as P4Runtime writes them."""
