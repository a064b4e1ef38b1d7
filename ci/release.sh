#!/usr/bin/env bash
# ci/release.sh [FOLDER] [build options]: the wheels and source distributions of a release, by default into dist/.
# Needs the package `build`. Every version is pinned, so the platforms' versions must equal the root's.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-dist}
shift || true
mkdir -p "$out"
export ANYCHIP_RELEASE=1
for project in . platforms/*/; do
  # Both from the tree: a wheel that was built from the source distribution would have no compiled kernels.
  python -m build --sdist --wheel --outdir "$out" "$@" "$project"
done
python ci/wheels.py "$out"
