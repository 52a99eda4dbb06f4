# SPDX-License-Identifier: Apache-2.0
"""The laboratory: fabrics of namespaces and P4 switches, trainings on them, and what they report."""
