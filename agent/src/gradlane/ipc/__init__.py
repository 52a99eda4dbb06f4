# SPDX-License-Identifier: Apache-2.0
"""What the daemon and a training process share: messages, memory, and the daemon's status."""
