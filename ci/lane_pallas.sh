#!/usr/bin/env bash
# The Pallas kernel without a TPU: numbers in interpret mode, where ci/pallas.sh has built the environment, and under the
# JAX of torch-xla where ci/tpu.sh has. Everywhere it checks that the recorded result is as new as the sources.
# `ci/lane_pallas.sh record` compiles for each chip through libtpu too (3 minutes), and records that.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=$(ci/pallas.sh where)
if [ ! -e "$kept/ready" ]; then
  echo "lane pallas: skipped, ci/pallas.sh has not built its environment (2.5 GB) here"
  python3 ci/recorded.py pallas
  exit
fi

export PYTHONPATH=$PWD:core:platforms/tpu JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1
"$kept/bin/python" -c 'import jax; print("lane pallas: jax", jax.__version__)'
"$kept/bin/python" -m pytest -q -p no:cacheprovider tests/pallas
older=$(ci/tpu.sh where)/xla/bin/python
[ -e "$older" ] && "$older" -m pytest -q -p no:cacheprovider tests/pallas -k "mixed and not padding"
if [ "${1:-}" = record ]; then
  page=benchmarks/results/$(date +%F)-pallas.md
  "$kept/bin/python" benchmarks/pallas_compile.py | tee "$page"
  python3 ci/recorded.py pallas write < "$page"
fi
python3 ci/recorded.py pallas
echo "lane pallas: ran"
