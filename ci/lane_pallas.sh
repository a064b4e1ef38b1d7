#!/usr/bin/env bash
# The Pallas kernel without a TPU: numbers in interpret mode, where ci/pallas.sh has built the environment, and under the
# JAX of torch-xla where ci/tpu.sh has.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=$(ci/pallas.sh where)
if [ ! -e "$kept/ready" ]; then
  echo "lane pallas: skipped, ci/pallas.sh has not built its environment (2.5 GB) here"
  exit 0
fi

export PYTHONPATH=$PWD:core:platforms/tpu JAX_PLATFORMS=cpu TPU_SKIP_MDS_QUERY=1
"$kept/bin/python" -c 'import jax; print("lane pallas: jax", jax.__version__)'
"$kept/bin/python" -m pytest -q -p no:cacheprovider tests/pallas
older=$(ci/tpu.sh where)/xla/bin/python
[ -e "$older" ] && "$older" -m pytest -q -p no:cacheprovider tests/pallas -k "mixed and not padding"
echo "lane pallas: ran"
