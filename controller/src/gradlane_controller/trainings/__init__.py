# SPDX-License-Identifier: Apache-2.0
"""Jobs without a job file on the hosts: their ranks ask for one, and the controller makes it, and takes it away."""
