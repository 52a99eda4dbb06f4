# SPDX-License-Identifier: Apache-2.0
"""A job's operations on the C core: transport, tensors, groups of processes."""
