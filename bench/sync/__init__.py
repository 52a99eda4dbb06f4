# SPDX-License-Identifier: Apache-2.0
"""Time to accuracy by scheme of synchronisation: who waits for whom, and what it costs."""
