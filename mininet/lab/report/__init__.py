# SPDX-License-Identifier: Apache-2.0
"""What people see: tables, plots, claims, the page."""
