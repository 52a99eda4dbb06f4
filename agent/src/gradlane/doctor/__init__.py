# SPDX-License-Identifier: Apache-2.0
"""`gradlane doctor`: are this host, its agent and the paths to a job's peers fit, and how to fix what is not."""
