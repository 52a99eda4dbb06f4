# SPDX-License-Identifier: Apache-2.0
"""What is known not to agree. The table is exact: a test fails when an entry is no longer true."""

# Programs on which gradlane-switch and BMv2 differ: the reason, which docs/limitations.md gives at more length.
DISAGREEMENTS = {
    "multicast_instances": "the order of several instances at one port",
    "signed_registers": "BMv2 reads a register of a signed type as unsigned",
}
