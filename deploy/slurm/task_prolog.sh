#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slurmd's TaskProlog: each task learns of the node's agent, and who it is in the job, as torchrun would say it.
echo "export GRADLANE_SOCKET=/run/gradlane-slurm/$SLURM_JOB_ID/agent.sock"
echo "export RANK=$SLURM_PROCID"
echo "export WORLD_SIZE=$SLURM_NTASKS"
