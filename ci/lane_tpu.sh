#!/usr/bin/env bash
# The TPU platform on PJRT's processor device: its tests, and the conformance kit with the demo model, where ci/tpu.sh
# has built the environment. Everywhere it checks that the recorded result is as new as the sources.
# `ci/lane_tpu.sh record` runs every level and records the result, in docs/records too; ci/platforms_table.py shows it.
set -euo pipefail
cd "$(dirname "$0")/.."

kept=$(ci/tpu.sh where)
if [ ! -e "$kept/ready" ]; then
  echo "lane tpu: skipped, ci/tpu.sh has not built its environment (10 GB) here"
  python3 ci/recorded.py tpu
  exit
fi

. ci/entry_point.sh tpu
export PYTHONPATH=$PWD:$PWD/core:$PWD/api:$PWD/platforms/tpu:$site ANYCHIP_RUNTIME=torch-xla-cpu
# Programs that are compiled in half the time, and not so many kept that the process runs out of memory maps.
export XLA_FLAGS="--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true" XLA_COMPILATION_CACHE_SIZE=256

"$kept/xla/bin/python" -c 'import torch, torch_xla; print("lane tpu: torch", torch.__version__, "torch-xla", torch_xla.__version__)'
"$kept/xla/bin/python" -m pytest -q -p no:cacheprovider tests/platforms/tpu
env -u ANYCHIP_RUNTIME "$kept/torchtpu/bin/python" -m pytest -q -p no:cacheprovider tests/platforms/tpu/test_torch_tpu.py
conform() { "$kept/xla/bin/python" -c 'from anychip.cli.main import main; main()' conform tpu --steps 200 "$@"; }
if [ "${1:-}" = record ]; then
  for level in 4 3 2 1 0; do  # a process each: programs of all levels together have more maps than a process may
    conform --level "$level" --record docs/records/tpu.json --on "XLA's processor device, not a TPU" | tee -a "$site/result"
  done
  python3 ci/recorded.py tpu write < "$site/result"
else
  conform --level 0 --level 4  # the others take minutes, and the record has them
fi
python3 ci/recorded.py tpu
echo "lane tpu: ran"
