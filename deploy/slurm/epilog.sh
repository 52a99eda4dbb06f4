#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slurmd's Epilog: the job's agent on this node ends, and what it had there goes.
set -u
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
folder=/run/gradlane-slurm/$SLURM_JOB_ID
pid=$(cat "$folder.pid" 2>/dev/null) || exit 0
# It may have ended by itself, and another process have its number.
lives() { tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$folder/agent.sock"; }
lives && kill "$pid"
for _ in $(seq 100); do
    lives || break
    sleep 0.1
done
lives && kill -9 "$pid"
rm -rf "$folder" "$folder.log" "$folder.pid"
