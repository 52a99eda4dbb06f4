# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: namespaces, processes that are asked, frames on wires, and the file that they leave."""
