# SPDX-License-Identifier: Apache-2.0
"""Studies on a simulated fabric: the engine that ships in the hosts, the P4 program's decisions in the switches."""
