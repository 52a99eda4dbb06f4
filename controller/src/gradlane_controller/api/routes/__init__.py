# SPDX-License-Identifier: Apache-2.0
"""What can be asked, by subject."""
