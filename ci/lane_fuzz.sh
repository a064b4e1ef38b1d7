#!/usr/bin/env bash
# Schemathesis and hostile clients against a server for a minute.
set -euo pipefail
cd "$(dirname "$0")/.."

. ci/environment.sh schemathesis
python benchmarks/fuzz.py --seconds "${FUZZ_SECONDS:-60}" --seed 1  # the same each time; ci/long.sh draws others
echo "lane fuzz: ran"
