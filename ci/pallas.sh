#!/usr/bin/env bash
# Builds what ci/lane_pallas.sh runs in, in the user's cache: JAX, and libtpu for its compiler (2.5 GB).
# Prints the folder. Needs a package index for pip; the lane runs only where this has been called.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/pallas-$(cat ci/pallas.sh ci/constraints.txt | sha256sum | cut -c -16)
echo "$kept"
[ "${1:-}" = where ] && exit 0
[ -e "$kept/ready" ] && exit 0
rm -rf "${kept%/*}"/pallas-*  # those of older versions too
python3 -m venv "$kept"
"$kept/bin/pip" install -q --no-cache-dir -c ci/constraints.txt jax==0.10.2 libtpu==0.0.52 \
  torch numpy msgspec pluggy tokenizers safetensors hypothesis pytest pytest-timeout setuptools
touch "$kept/ready"
