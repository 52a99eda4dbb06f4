# SPDX-License-Identifier: Apache-2.0
"""A P4 program as data: headers, expressions, statements, tables."""
