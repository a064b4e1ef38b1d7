#!/usr/bin/env bash
# The tests of the CPU kernels, compiled with address and undefined-behaviour sanitizers. Where the environment has no
# torch, one is made and kept, which needs a package index for pip the first time.
set -euo pipefail
cd "$(dirname "$0")/.."

variant=avx2
command -v g++ >/dev/null || { echo "lane sanitizers: did not run, there is no g++"; exit 0; }
grep -qw $variant /proc/cpuinfo || { echo "lane sanitizers: did not run, the processor has no $variant"; exit 0; }

python=python3
if ! "$python" -c 'import hypothesis, pytest, pytest_timeout, torch' 2>/dev/null; then
  kept=${XDG_CACHE_HOME:-$HOME/.cache}/anychip-ci/kernels-$(cat ci/lane_sanitizers.sh ci/constraints.txt | sha256sum | cut -c -16)
  python=$kept/bin/python
  if [ ! -e "$kept/ready" ]; then
    rm -rf "${kept%/*}"/kernels-*  # those of older versions too
    python3 -m venv "$kept"
    "$python" -m pip install -q -c ci/constraints.txt \
      torch numpy msgspec pluggy tokenizers safetensors hypothesis pytest pytest-timeout
    touch "$kept/ready"
  fi
fi

cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
export ANYCHIP_CACHE_DIR=$cache PYTHONPATH=core:platforms/cpu:.
"$python" -m anychip_cpu.native.build --into "$cache/native" --option=-fsanitize=address,undefined \
  --option=-fno-sanitize-recover=all --option=-fno-omit-frame-pointer --option=-g1 --option=-O1 $variant

# What the compiled library needs and the interpreter lacks has to be loaded before everything else.
preload=$(for name in libasan.so libubsan.so libstdc++.so.6; do g++ -print-file-name=$name; done | paste -sd:)
LD_PRELOAD=$preload ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
  "$python" -m pytest -q -p no:cacheprovider tests/platforms/cpu/test_native.py \
    tests/platforms/cpu/test_native_codes.py tests/platforms/cpu/test_native_program.py -k "$variant"
echo "lane sanitizers: ran"
