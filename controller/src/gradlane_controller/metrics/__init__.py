# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus. docs/controller.md lists them.

Labels are names of the fabric file (switches, hosts, ports), of jobs that are in the network, and of this program. So
no client makes one.
"""
