# SPDX-License-Identifier: Apache-2.0
"""What is out there: the fabric file, its paths and links, and the frames that hosts and switches send."""
