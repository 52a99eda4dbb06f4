# SPDX-License-Identifier: Apache-2.0
"""Job files without the secret of the job, which nobody is told but the ranks that ask for their job."""

import asyncio
import tomllib
from collections.abc import Mapping

import tomli_w

from gradlane import job
from gradlane.job import Job


def without_key(text: str) -> str:
    """The same job file without its key, and without its comments, which may have one."""
    content = tomllib.loads(text)
    content["job"].pop("key", None)
    return tomli_w.dumps(content)


async def keeping_keys(some: Mapping[str, Job], now: Mapping[str, Job]) -> dict[str, Job]:
    """These jobs, by name; those without a key have that of the job which they replace: so a file that was read
    without its key can be put again."""

    def kept(name: str, it: Job) -> Job:
        before = now.get(name)
        if it.key or before is None or not before.key:
            return it
        content = tomllib.loads(it.text)
        content["job"]["key"] = before.key.hex()
        return job.parse(tomli_w.dumps(content), it.file)

    return {name: await asyncio.to_thread(kept, name, it) for name, it in some.items()}
