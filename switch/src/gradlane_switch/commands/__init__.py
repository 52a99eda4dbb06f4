# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `gradlane-switch`, and what they need."""
