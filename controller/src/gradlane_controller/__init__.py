# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime controller: makes a switch hold what a fabric file and job files say."""
