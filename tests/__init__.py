# SPDX-License-Identifier: Apache-2.0
"""The tests: a folder for each package; README.md says which layer proves what."""
