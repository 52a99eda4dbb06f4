# SPDX-License-Identifier: Apache-2.0
"""What a tolerated loss of gradients does to accuracy."""
