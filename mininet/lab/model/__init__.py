# SPDX-License-Identifier: Apache-2.0
"""What is planned, as data: topologies, scenarios, plans of a fabric, results."""
