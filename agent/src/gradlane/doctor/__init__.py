# SPDX-License-Identifier: Apache-2.0
"""`gradlane doctor`: is this host, its agent and the way to a job's peers fit, and how is what is wrong mended?"""
