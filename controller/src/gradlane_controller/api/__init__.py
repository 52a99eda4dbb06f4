# SPDX-License-Identifier: Apache-2.0
"""The controller over HTTP: what it answers (`routes`), to whom (`security`, `tokens`), within which bounds."""
