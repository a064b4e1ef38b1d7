#!/usr/bin/env bash
# Triton's kernels without their devices: numbers in Triton's interpreter, then compiled for each target.
# The environment is kept, and so is what was compiled. Needs a package index for pip, the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

[ -d tests/triton ] || { echo "lane triton: did not run, there is no tests/triton here"; exit 0; }

. ci/triton_environment.sh
export PYTHONPATH=core:platforms/cuda:platforms/rocm:platforms/xpu TRITON_CACHE_DIR=$kept/compiled
"$kept/bin/python" -c 'import torch, triton; print("lane triton: torch", torch.__version__, "triton", triton.__version__)'
TRITON_INTERPRET=1 "$kept/bin/python" -m pytest -q tests/triton
"$kept/bin/python" -m pytest -q tests/triton
echo "lane triton: ran"
