#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# slurmd's Prolog: an agent for the job on this node, as the job's user. If none starts slurmd drains the node, and its
# log says why.
set -eu
export PATH=/opt/gradlane/bin:/usr/sbin:/usr/bin:/sbin:/bin
place=/run/gradlane-slurm
folder=$place/$SLURM_JOB_ID # the user's; what root writes is not in it
address=$(getent ahostsv4 "$SLURMD_NODENAME" | awk 'NR == 1 { print $1 }')
[ -n "$address" ] || { echo "$SLURMD_NODENAME has no address that this node knows: see /etc/hosts" && exit 1; }
install -d -m 755 "$place"
install -d -m 700 -o "$SLURM_JOB_UID" "$folder"
# A session of its own, as slurmd ends what a prolog leaves behind in its.
setsid setpriv --reuid "$SLURM_JOB_UID" --regid "$(id -g "$SLURM_JOB_UID")" --init-groups \
    gradlane agent --address "$address" --socket "$folder/agent.sock" >"$folder.log" 2>&1 </dev/null &
echo $! >"$folder.pid"
for _ in $(seq 100); do
    [ -S "$folder/agent.sock" ] && exit 0
    kill -0 $! 2>/dev/null || break
    sleep 0.1
done
cat "$folder.log"
exit 1
