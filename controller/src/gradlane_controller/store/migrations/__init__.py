# SPDX-License-Identifier: Apache-2.0
"""The history of the tables. The next step is a file in `versions`, whose `down_revision` is the last one's number."""
