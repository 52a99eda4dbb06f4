# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training under Horovod's names: what all frameworks share of it. It knows numpy arrays only."""
