# SPDX-License-Identifier: Apache-2.0
"""Starts processes as children of one that has imported PyTorch, which takes seconds; there is one in each pytest."""

import multiprocessing

FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["torch", "torch.distributed.fsdp", "torch._dynamo", "gradlane.torch"])
