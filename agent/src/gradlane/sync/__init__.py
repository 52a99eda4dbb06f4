# SPDX-License-Identifier: Apache-2.0
"""Synchronisation without a global step: which workers exchange what, when, and how it is mixed in (docs/sync.md)."""

from gradlane.sync.ad_psgd import AdPsgd
from gradlane.sync.ds_sync import DsSync
from gradlane.sync.local_sgd import LocalSgd
from gradlane.sync.ripples import Ripples
from gradlane.sync.scheme import Scheme, What
from gradlane.sync.synchroniser import Synchroniser

__all__ = ["AdPsgd", "DsSync", "LocalSgd", "Ripples", "Scheme", "Synchroniser", "What"]
