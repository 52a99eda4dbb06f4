# SPDX-License-Identifier: Apache-2.0
"""What benchmarks share: their command line, namespaces, processes that answer, frames on wires, figures."""
