# SPDX-License-Identifier: Apache-2.0
"""One switch: the P4Runtime session, what it holds, its counters and what it tells."""
