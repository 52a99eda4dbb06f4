# SPDX-License-Identifier: Apache-2.0
"""The simulator beside what it simulates."""
