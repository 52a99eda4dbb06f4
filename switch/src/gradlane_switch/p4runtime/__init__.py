# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime server: entities, batches, arbitration, streams."""
