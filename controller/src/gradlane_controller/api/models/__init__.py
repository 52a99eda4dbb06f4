# SPDX-License-Identifier: Apache-2.0
"""Shapes of answers, by subject, for the OpenAPI document: what is built elsewhere is not checked against them but by
tests."""
