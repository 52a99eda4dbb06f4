# SPDX-License-Identifier: Apache-2.0
"""The P4Runtime controller: fills the tables of switches from a fabric file and job files."""
