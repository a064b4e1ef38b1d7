#!/usr/bin/env bash
# The Intel platform without a GPU: attention of Intel's extension on the processor, and whole steps whose kernels are
# compiled, where ci/xpu.sh has built the environments. Elsewhere it checks that what was recorded is as new as the
# sources. `ci/lane_xpu.sh record` records the result; benchmarks/xpu_targets.py goes on to the chips' own code.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=$(ci/xpu.sh where)
if [ ! -e "$kept/ready" ]; then
  echo "lane xpu: skipped, ci/xpu.sh has not built its environments (9 GB) here"
  python3 ci/recorded.py xpu
  exit
fi

. ci/entry_point.sh xpu
export PYTHONPATH=$PWD:core:api:platforms/xpu:$site TRITON_CACHE_DIR=$kept/compiled

"$kept/ipex/bin/python" -c 'import torch; print("lane xpu: torch", torch.__version__)'
"$kept/ipex/bin/python" -m pytest -q -p no:cacheprovider tests/platforms/xpu
"$kept/triton/bin/python" -W ignore -m pytest -q -p no:cacheprovider tests/platforms/xpu/test_steps.py
levels="--level 2"
[ "${1:-}" = record ] && levels="--level 1 --level 2"
# shellcheck disable=SC2086
"$kept/ipex/bin/python" -m anychip conform ipex $levels 2> "$site/log" | tee "$site/result" || { cat "$site/log"; exit 1; }
[ "${1:-}" = record ] && python3 ci/recorded.py xpu write < "$site/result"
python3 ci/recorded.py xpu
echo "lane xpu: ran"
