# SPDX-License-Identifier: Apache-2.0
"""The C runtime, and generated programs: compiled, and loaded."""
