# SPDX-License-Identifier: Apache-2.0
"""Jobs are tuned by what is seen of them: what is observed, what is decided, and when it is done and undone."""
