#!/usr/bin/env bash
# Every Triton kernel on every target, compiled afresh: the table in benchmarks/results/*-triton-targets.md. Ten minutes.
set -euo pipefail
. ci/triton_environment.sh
compiled=$(mktemp -d)
trap 'rm -rf "$compiled"' EXIT
export PYTHONPATH=.:core:platforms/cuda:platforms/rocm TRITON_CACHE_DIR=$compiled
"$kept/bin/python" benchmarks/triton_targets.py
