#!/usr/bin/env bash
# The README's first command, in its own environment: a real model answers. Needs a package index for pip.
set -euo pipefail
cd "$(dirname "$0")/.."

answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
ci/readme.sh run | tee "$answer"
grep -q Paris "$answer" || { echo "lane run: FAILED, the answer does not name Paris"; exit 1; }
if grep -q 'torch-[0-9.]*+cpu' "$answer" && grep -qiE '(nvidia|triton)[a-z0-9-]*-[0-9]' "$answer"; then
  echo "lane run: FAILED, a CPU install brought GPU packages"
  exit 1
fi
echo "lane run: ran"
