#!/usr/bin/env bash
# The README's first command, in its own environment: a real model answers. Needs a package index for pip.
set -euo pipefail
cd "$(dirname "$0")/.."

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
ci/readme.sh run | tee "$answer"
grep -q Paris "$answer" || { echo "lane run: FAILED, the answer does not name Paris"; exit 1; }
echo "lane run: ran"
