# SPDX-License-Identifier: Apache-2.0
"""What tests of several folders share: processes, networks, packets and programs. Nothing here is a test."""
