# SPDX-License-Identifier: Apache-2.0
"""The schemes by their names in a job file."""

from typing import Any

from gradlane import toml_file
from gradlane.job import Job, JobError
from gradlane.job import sync as settings
from gradlane.sync.acco import Acco
from gradlane.sync.ad_psgd import AdPsgd
from gradlane.sync.ds_sync import DsSync
from gradlane.sync.local_sgd import LocalSgd
from gradlane.sync.r_fast import RFast
from gradlane.sync.ringmaster import Ringmaster
from gradlane.sync.ripples import Ripples
from gradlane.sync.scheme import Scheme

_MADE: dict[str, Any] = {
    "ds-sync": DsSync,
    "local-sgd": LocalSgd,
    "diloco": LocalSgd,
    "ad-psgd": AdPsgd,
    "acco": Acco,
    "ripples": Ripples,
    "ringmaster": Ringmaster,
    "r-fast": RFast,
}


def scheme_of(job: Job, scheme: Scheme | str | None) -> Scheme:
    """`scheme` itself, that of such a name with its usual options, or with None the job file's. Raises JobError."""
    if isinstance(scheme, Scheme):
        return scheme
    if scheme is not None:
        found = settings.parse(toml_file.root_table(JobError, "the argument", {"scheme": scheme}))
    elif job.sync is not None:
        found = job.sync
    else:
        raise job.error("sync", "is missing, and no scheme was passed: say which one, in [sync]")
    return _MADE[found.scheme](**found.options)
