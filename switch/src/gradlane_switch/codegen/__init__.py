# SPDX-License-Identifier: Apache-2.0
"""A program as C."""
