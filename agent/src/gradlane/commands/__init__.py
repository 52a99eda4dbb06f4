# SPDX-License-Identifier: Apache-2.0
"""The commands of `gradlane`, one module each: `add` describes its flags, and the function they lead to runs it."""
