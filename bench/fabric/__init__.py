# SPDX-License-Identifier: Apache-2.0
"""The whole fabric: switches, controller, agents and jobs together."""
