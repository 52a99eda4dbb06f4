# SPDX-License-Identifier: Apache-2.0
"""One switch: the P4Runtime session, the entries that it holds, its counters and its reports of violations."""
