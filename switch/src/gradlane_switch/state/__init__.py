# SPDX-License-Identifier: Apache-2.0
"""What controllers have written: tables, profiles, groups, and the program that they belong to."""
