#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the images gradlane-agent, -switch and -controller from the wheels in out/dist, by buildah, as root or not.
#
#   deploy/containers/build.sh [OPTION OF buildah build ...]
#
# BASE=IMAGE: on what they are built; BASE=mirror: on a system that debootstrap fetches from Debian's mirror, where no
# registry of images can be reached (as root). BUILDAH: how buildah is called, e.g. "buildah --storage-driver vfs".
set -euo pipefail
cd "$(dirname "$0")/../.."
read -ra buildah <<<"${BUILDAH:-buildah}"
base=${BASE:-docker.io/library/debian:bookworm-slim}
version=$(<VERSION)
if [ "$base" = mirror ]; then
    base=localhost/gradlane-base:bookworm
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    debootstrap --variant=minbase bookworm "$folder" http://deb.debian.org/debian
    rm -rf "$folder"/var/cache/apt/archives/*.deb "$folder"/var/lib/apt/lists/* "$folder"/usr/share/{doc,man,locale}/*
    container=$("${buildah[@]}" from scratch)
    "${buildah[@]}" add --quiet "$container" "$folder" /
    "${buildah[@]}" config --cmd bash "$container"
    "${buildah[@]}" commit --quiet --rm "$container" "$base"
fi
for part in agent switch controller; do
    # Docker's form, as OCI's has no HEALTHCHECK.
    "${buildah[@]}" build --format docker --build-arg "BASE=$base" --target "$part" --tag "gradlane-$part:$version" \
        --file deploy/containers/Containerfile "$@" .
done
