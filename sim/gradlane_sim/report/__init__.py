# SPDX-License-Identifier: Apache-2.0
"""What a study has found: figures, a table in the terminal, and a page."""
