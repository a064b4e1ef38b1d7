#!/usr/bin/env bash
# ci/readme.sh run|test: execute exactly that block of the README in a clean clone of the last commit.
# The clone is deleted afterwards; KEEP=1 keeps it. Outside a git repository the block runs in place.
set -euo pipefail

marker=${1:?usage: ci/readme.sh run|test}
root=$(cd "$(dirname "$0")/.." && pwd)

if git -C "$root" rev-parse --verify --quiet HEAD >/dev/null; then
  [ -z "$(git -C "$root" status --porcelain)" ] || echo "readme: uncommitted changes are not part of the clone" >&2
  scratch=$(mktemp -d)
  [ -n "${KEEP:-}" ] || trap 'rm -rf "$scratch" || echo "readme: some of $scratch is left" >&2' EXIT  # not our failure
  git clone --quiet "$root" "$scratch/anychip"
  cd "$scratch/anychip"
else
  cd "$root"
fi

block=$(python3 ci/fences.py README.md "$marker")
started=$SECONDS
bash -euo pipefail -c "$block"
echo "readme: $marker took $((SECONDS - started)) s" >&2
