# SPDX-License-Identifier: Apache-2.0
"""An experiment: a scenario's arms, one after another, on one fabric."""
