# SPDX-License-Identifier: Apache-2.0
"""What is known not to agree, by program. Both tables are exact: a test fails when an entry is no longer true."""

# Programs whose feature gradlane-switch lacks: a part of the message that refuses them.
REFUSALS = {
    "queue_metadata": "queue metadata",
}

# Programs on which gradlane-switch and BMv2 differ: the reason, which docs/limitations.md gives at more length.
DISAGREEMENTS = {
    "multicast_instances": "the order of several instances at one port",
    "signed_registers": "BMv2 reads a register of a signed type as unsigned",
}
