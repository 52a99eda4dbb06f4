# SPDX-License-Identifier: Apache-2.0
"""What a P4 program's annotations let controllers write: `@entry_restriction`, `@action_restriction`, `@refers_to`."""
