# SPDX-License-Identifier: Apache-2.0
"""The commands of gradlane-controller, by subject; each module adds its own to the parser."""
