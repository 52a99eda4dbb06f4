# SPDX-License-Identifier: Apache-2.0
"""Synchronisation without a global step: which workers exchange what, when, and how it is mixed in (docs/sync)."""

from gradlane.sync.acco import Acco
from gradlane.sync.ad_psgd import AdPsgd
from gradlane.sync.asynchronous import Asynchronous
from gradlane.sync.averaging import Averaging
from gradlane.sync.ds_sync import DsSync
from gradlane.sync.local_sgd import LocalSgd
from gradlane.sync.outer import Outer
from gradlane.sync.r_fast import RFast
from gradlane.sync.ringmaster import Ringmaster
from gradlane.sync.ripples import Ripples
from gradlane.sync.scheme import Scheme
from gradlane.sync.synchroniser import Synchroniser

__all__ = [
    "Acco",
    "AdPsgd",
    "Asynchronous",
    "Averaging",
    "DsSync",
    "LocalSgd",
    "Outer",
    "RFast",
    "Ringmaster",
    "Ripples",
    "Scheme",
    "Synchroniser",
]
